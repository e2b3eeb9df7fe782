#!/usr/bin/env bash
# Random pipelines under random faults, for some minutes: campaign.sh MINUTES [SEED] [--one].
# Exit code 1 when any failed. See tests/campaign/README.md.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

install_project "[test]"
export PYTHONPATH=$repo/tests${PYTHONPATH:+:$PYTHONPATH}
exec nice "$venv/bin/python" -m campaign "$@"
