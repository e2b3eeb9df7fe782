#!/usr/bin/env bash
# Build the documentation site into build/docs/html, in an environment of its own (build/docs/venv, or $DOCS_VENV).
# Warnings are errors: a link that leads nowhere, a page in no table of contents, a docstring that cannot be read.
# Arguments go to sphinx-build.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

cd "$repo"
venv=${DOCS_VENV:-$repo/build/docs/venv}
mkdir -p build/docs
install_project "[docs]"
"$venv/bin/sphinx-build" -W --keep-going --quiet "$@" docs build/docs/html
echo "build/docs/html/index.html"
