#!/usr/bin/env bash
# Set up .venv in the repository and run the whole test suite. Arguments go to pytest.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

install_project "[test]"
cd "$repo"
# Each of hundreds of processes would compile all modules.
unset PYTHONDONTWRITEBYTECODE
jobs=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# One more than there are processors: for a quarter of the time, tests wait for processes that they started.
exec "$venv/bin/python" -m pytest -n "$((jobs + 1))" "$@"
