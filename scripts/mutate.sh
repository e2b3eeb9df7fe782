#!/usr/bin/env bash
# Ask which faults of one line the tests find. Arguments: `scripts/mutate.sh --help`.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

install_project "[test]"
exec "$venv/bin/python" "$repo/scripts/mutate.py" "$@"
