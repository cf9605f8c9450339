#!/usr/bin/env bash
# Builds the Python package in a new virtual environment and runs its tests, the example notebook among them, and mypy.
#
#     scripts/python.sh [PYTHON]
#
# PYTHON is the interpreter, 3.10 or later [default: python3]. Packages come from the index that pip is configured for.
# Without Python or an index nothing is tested: the script says so and succeeds, or fails if PAGEYARD_NEEDS is set, as in
# CI. The compiled parts are shared with `cargo test --workspace`, in the same target directory, with the same features
# (`as-tested`) and the lab as the profile of tests (Cargo.toml) has it.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/python
environment=$work/environment
# Every step names a fixed folder below the target directory, which later runs replace.
export CARGO_TARGET_DIR=$target

# Like pageyard-unmet's: what is missing, and how to get it.
skip() {
    if [ "${PAGEYARD_NEEDS:-0}" != 0 ]; then
        echo "PAGEYARD_NEEDS is set, and this is missing: $*" >&2
        exit 1
    fi
    echo "skipped: the Python package: $*"
    exit 0
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
    skip "Python 3.10 or later (apt-get install python3)"
rm -rf "$environment" "$work/wheels"
"$python" -m venv "$environment" >/dev/null 2>&1 || skip "Python's module venv (apt-get install python3-venv)"
export PIP_DISABLE_PIP_VERSION_CHECK=1
if ! "$environment/bin/pip" install --quiet --no-compile -r python/requirements-test.txt 2>"$work/pip.txt"; then
    tail -n 5 "$work/pip.txt" >&2
    skip "the packages of python/requirements-test.txt (a package index that pip reaches)"
fi

# Nothing but the environment's Python is looked at.
export VIRTUAL_ENV=$environment PATH=$environment/bin:$PATH
(cd python && maturin build --quiet --profile dev --config profile.dev.package.pageyard-lab.opt-level=2 \
    --features as-tested --out "$work/wheels")
pip install --quiet --no-index --no-deps "$work"/wheels/pageyard-*.whl

# Away from the sources, so that the installed package is tested.
tests=$PWD/python/tests
mkdir -p "$work/run"
cd "$work/run"
PAGEYARD_SAMPLES=$(dirname "$(dirname "$tests")")/samples python -m pytest --quiet -p no:cacheprovider "$tests"
# Types: the package against its own stubs, and a user's code against the installed package.
mypy --no-error-summary --cache-dir "$work/mypy" --config-file "$tests/../pyproject.toml" --strict -p pageyard
mypy --no-error-summary --cache-dir "$work/mypy" --strict "$tests/typed.py"
echo "python: the package is built and tested with $(python --version), in $environment"
