#!/usr/bin/env bash
# Builds the program `pageyard` and installs it with its manual pages, completions, samples and documentation.
# scripts/install-capi.sh does the same for the C libraries.
#
#     scripts/install-program.sh [--destdir DIR] [--profile NAME] [--system-libraries] [--program FILE] PREFIX
#
# PREFIX              where it will be used from, an absolute path: /usr/local
# --destdir DIR       put it under DIR/PREFIX instead, for a package
# --profile NAME      cargo's profile; release if not given
# --system-libraries  link the system's zstd and liblzma, found by pkg-config, instead of building them in
# --program FILE      install this program, built before, instead of building one; it must run on this machine
#
# Under PREFIX come
#     bin/pageyard
#     share/man/man1/pageyard*.1                        one page per command
#     share/bash-completion/completions/pageyard
#     share/zsh/site-functions/_pageyard
#     share/fish/vendor_completions.d/pageyard.fish
#     share/pageyard/samples/                           what the examples in `--help` name
#     share/doc/pageyard/                               README, changelog, licences, docs/, the book, and the
#                                                       examples in Rust and C that it names, under crates/
# Nothing is installed unless all of it was built. Needs cargo and a C compiler.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

fail() { printf 'install-program: %s\n' "$*" >&2; exit 2; }
usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"; }

destdir="" profile="" program="" prefix="" features=()
while [ $# -gt 0 ]; do
    case $1 in
    --system-libraries) features=(--no-default-features --features "system-zstd,system-liblzma") ;;
    --destdir | --profile | --program)
        [ $# -gt 1 ] || fail "$1 wants a value"
        case $1 in
        --destdir) destdir=$2 ;;
        --profile) profile=$2 ;;
        --program) program=$2 ;;
        esac
        shift
        ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option $1; see --help" ;;
    *)
        [ -z "$prefix" ] || fail "one PREFIX, not also $1"
        prefix=$1
        ;;
    esac
    shift
done
case $prefix in
/*) prefix=${prefix%/} ;;
"") usage >&2; exit 2 ;;
*) fail "PREFIX must be an absolute path: $prefix" ;;
esac
if [ -n "$program" ]; then
    [ -z "$profile" ] || fail "--profile is for a program that is built here, not for --program"
    [ ${#features[@]} = 0 ] || fail "--system-libraries is for a program that is built here, not for --program"
    [ -f "$program" ] && [ -x "$program" ] || fail "--program $program is no program"
    given=$program program=$(realpath "$program")
    case $("$program" --version 2>/dev/null) in
    pageyard\ *) ;;
    *) fail "--program $given is not pageyard" ;;
    esac
else
    command -v cargo >/dev/null || fail "cargo is missing: install Rust"
    profile=${profile:-release}
    (cd "$here" && cargo build --quiet -p pageyard-cli --profile "$profile" ${features[@]+"${features[@]}"}) ||
        fail "the program did not build"
    directory=$profile
    [ "$profile" != dev ] || directory=debug
    program=$(cd "$here" && realpath "${CARGO_TARGET_DIR:-target}/${CARGO_BUILD_TARGET:-.}/$directory/pageyard")
fi

stage=$(mktemp -d)
new=""
trap 'rm -rf "$stage" "$new"' EXIT
share=$stage/share
install -D -m 755 "$program" "$stage/bin/pageyard"
"$program" man "$share/man/man1" --samples "$prefix/share/pageyard/samples"
completions() { # SHELL FILE
    mkdir -p "$(dirname "$2")"
    "$program" completions "$1" >"$2"
}
completions bash "$share/bash-completion/completions/pageyard"
completions zsh "$share/zsh/site-functions/_pageyard"
completions fish "$share/fish/vendor_completions.d/pageyard.fish"

# As the README's links have them. Results of `pageyard sweep` may lie beside its description.
copy() { # FOLDER-OF-THE-REPOSITORY TO
    (cd "$here/$1" && find . -type f ! -path "*.results/*" -exec install -D -m 644 {} "$2"/{} \;)
}
copy samples "$share/pageyard/samples"
copy docs "$share/doc/pageyard/docs"
for examples in "$here"/crates/*/examples; do
    examples=${examples#"$here"/}
    copy "$examples" "$share/doc/pageyard/$examples"
done
install -m 644 "$here"/{README,CHANGELOG,CONTRIBUTING,SECURITY}.md "$here"/LICENSE-{MIT,APACHE} "$share/doc/pageyard/"

to=$destdir$prefix
mkdir -p "$to/bin" "$to/share"
# A program that runs keeps its file. A link to a file is replaced, not written through; one to a folder is followed.
new=$(mktemp "$to/bin/.pageyard.XXXXXX")
install -m 755 "$stage/bin/pageyard" "$new"
find "$share" -type f -printf '%P\0' | while IFS= read -r -d '' file; do
    install -D -m 644 "$share/$file" "$to/share/$file"
done
mv -fT "$new" "$to/bin/pageyard"
printf 'install-program: pageyard is in %s\n' "$to"
