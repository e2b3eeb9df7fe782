#!/usr/bin/env bash
# Convert, describe, export and analyse every raster below FOLDER, and compare with rasterio: corpus.sh FOLDER [--json FILE]
# Exit code 1 when anything differs. See scripts/corpus.py.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

install_project "[test]"
exec nice "$venv/bin/python" "$repo/scripts/corpus.py" "$@"
