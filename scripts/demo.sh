#!/usr/bin/env bash
# Set up .venv in the repository and run the demo, into demo-output below the current folder.
# Arguments, if any, go to `terrain-gpu demo` instead: [--overwrite] [FOLDER].
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

install_project "[plot]"
if (($# == 0)); then
    set -- --overwrite # nothing else writes to demo-output
fi
exec "$venv/bin/terrain-gpu" demo "$@"
