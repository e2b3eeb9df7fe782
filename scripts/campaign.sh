#!/usr/bin/env bash
# Random pipelines under random faults, for so many minutes: campaign.sh MINUTES [SEED] [--one].
# Exit code 1 when any failed. tests/campaign/README.md tells what is done.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

install_project "[test]"
export PYTHONPATH=$repo/tests${PYTHONPATH:+:$PYTHONPATH}
exec nice "$venv/bin/python" -m campaign "$@"
