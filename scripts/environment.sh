# Sourced by demo.sh and test.sh: makes .venv in the repository and installs the project into it.
#   install_project ""          the project
#   install_project "[test]"    and what its tests need
# $PYTHON names the interpreter that makes .venv (default python3).

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=$repo/.venv
needed='import sys; sys.exit(sys.version_info < (3, 11))'

fail() {
    printf 'Error: %s\n' "$*" >&2
    exit 1
}

make_venv() {
    local python=${PYTHON:-python3}
    command -v "$python" >/dev/null || fail "$python: no such program; set PYTHON to a Python >= 3.11"
    "$python" -c "$needed" ||
        fail "$python is $("$python" --version 2>&1); set PYTHON to a Python >= 3.11"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python has no venv module; on Debian and Ubuntu: apt install python3-venv"
    echo "Making $venv" >&2
    "$python" -m venv --clear "$venv" || fail "$venv cannot be made"
}

install_project() {
    # Rebuild a .venv that was left half made, or whose Python is gone or too old.
    if ! { "$venv/bin/python" -c "$needed" && "$venv/bin/python" -m pip --version; } >/dev/null 2>&1; then
        make_venv
    fi
    # Install once for this path and this pyproject.toml.
    local stamp=$venv/.terrain_gpu$1 wanted
    wanted=$(printf '%s\n' "$repo" && cat "$repo/pyproject.toml")
    if [[ ! -x $venv/bin/terrain-gpu || $(cat "$stamp" 2>/dev/null) != "$wanted" ]]; then
        echo "Installing terrain_gpu$1 into $venv" >&2
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$repo$1" ||
            fail "pip could not install the project; is the network there?"
        printf '%s\n' "$wanted" >"$stamp"
    fi
}
