#!/usr/bin/env bash
# Every command over whole rasters, on workers and in a bucket, compared with a disk: compare_engines.sh [RASTER ...].
# Exit code 1 when anything differs. See tests/campaign/engines.py.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

install_project "[test]"
export PYTHONPATH=$repo/tests${PYTHONPATH:+:$PYTHONPATH}
exec nice "$venv/bin/python" -m campaign.engines "$@"
