#!/usr/bin/env bash
# What a registry asks of the packages, and what `cargo package` does not check:
#
# - Each package that can be published has a description, the workspace's repository, a documentation address, a
#   readme, the licence, 1 to 5 categories and keywords, and both licence files.
# - A dependency inside the workspace has a version.
# - Sources include no file from outside their package. Tests may: they run in the repository only.
# - `cargo package` has no warning.
# - The workspace and the Debian packages have the same version; the changelog has a section for each version, and one
#   for what is unreleased at the top.
#
#     scripts/packages.sh
#
# Prints each defect and fails if there is any. Takes seconds and no network. Needs cargo and perl.
set -euo pipefail
cd "$(dirname "$0")/.."

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
cargo metadata --format-version 1 --no-deps --offline --locked >"$stage/metadata"

# defects REPOSITORY METADATA: one line for each.
defects() {
    perl -MJSON::PP -e '
        my ($repository, $file) = @ARGV;
        open my $in, "<", $file or die "$file: $!\n";
        for my $package (@{decode_json(join "", <$in>)->{packages}}) {
            # `publish = false` is an empty list of registries.
            next if $package->{publish} && !@{$package->{publish}};
            my %lacks = map { $_ => 1 } grep { !length($package->{$_} // "") }
                qw(description repository documentation readme license);
            $lacks{"the workspace\x27s repository"} = 1 if ($package->{repository} // "") ne $repository;
            for my $list (qw(categories keywords)) {
                $lacks{"1 to 5 $list"} = 1 if @{$package->{$list}} < 1 || @{$package->{$list}} > 5;
            }
            $lacks{"keywords of at most 20 characters"} = 1 if grep { length > 20 } @{$package->{keywords}};
            my ($folder) = $package->{manifest_path} =~ m{(.*)/};
            for my $licence (qw(LICENSE-MIT LICENSE-APACHE)) { $lacks{$licence} = 1 unless -s "$folder/$licence"; }
            for my $other (@{$package->{dependencies}}) {
                $lacks{"a version for $other->{name}"} = 1
                    if $other->{path} && ($other->{kind} // "") ne "dev" && $other->{req} eq "*";
            }
            print "$package->{name} lacks $_\n" for sort keys %lacks;
        }
    ' "$@"
}

# outside FILE...: sources that include a file from outside their package, unless for their examples in documentation.
outside() {
    perl -0777 -e '
        for my $file (@ARGV) {
            open my $in, "<", $file or die "$file: $!\n";
            my $text = <$in>;
            $text =~ s/#\[cfg\([^\n]*\bdoctest\b[^\n]*\)\]\n#\[doc = include_str![^\n]*\n/\n\n/g;
            # The depth of the file below its package: crates/NAME/src/a/b.rs may go up two folders.
            my $depth = ($file =~ tr{/}{}) - 2;
            while ($text =~ /\binclude(?:_str|_bytes)?!\(\s*"((?:\.\.\/)*)/g) {
                next if length($1) / 3 <= $depth;
                my $line = 1 + (substr($text, 0, $-[0]) =~ tr/\n//);
                print "$file:$line: includes a file from outside its package\n";
            }
        }
    ' "$@"
}

# The checks themselves: they find each of these and nothing else.
mkdir -p "$stage/crates/bare/src"
cat >"$stage/planted" <<JSON
{"packages": [
 {"name": "bare", "publish": null, "manifest_path": "$stage/crates/bare/Cargo.toml", "categories": [], "keywords": [],
  "description": null, "repository": null, "documentation": null, "readme": null, "license": null,
  "dependencies": [{"name": "near", "path": "/near", "kind": null, "req": "*"},
                   {"name": "tests", "path": "/tests", "kind": "dev", "req": "*"}]},
 {"name": "private", "publish": [], "manifest_path": "/private/Cargo.toml", "categories": [], "keywords": [],
  "dependencies": []}
]}
JSON
found=$(defects here "$stage/planted" | sed 's/^bare lacks //' | paste -sd, -)
expected="1 to 5 categories,1 to 5 keywords,LICENSE-APACHE,LICENSE-MIT,a version for near,description,documentation"
expected+=",license,readme,repository,the workspace's repository"
[ "$found" = "$expected" ] || { echo "the check does not find its planted defects: $found" >&2; exit 1; }
cat >"$stage/crates/bare/src/lib.rs" <<'RUST'
const A: &str = include_str!("../a.txt");
const B: &str = include_str!("../../b.txt"); // line 2
#[cfg(doctest)]
#[doc = include_str!("../../../docs/c.md")]
struct C;
const D: &[u8] = include_bytes!("../../../d.txt"); // line 6
RUST
found=$(cd "$stage" && outside crates/bare/src/lib.rs | cut -d: -f2 | paste -sd' ' -)
[ "$found" = "2 6" ] || { echo "the check does not find its planted includes: lines $found" >&2; exit 1; }

wrong=0
fail() { printf '%s\n' "$1" >&2; wrong=1; }
defects "$repository" "$stage/metadata" >"$stage/found"
mapfile -t files < <(git ls-files 'crates/*/src/*.rs')
outside "${files[@]}" >>"$stage/found"
[ ! -s "$stage/found" ] || fail "$(cat "$stage/found")"

# Packages that are never published are not packaged, nor is anything compiled.
mapfile -t private < <(perl -MJSON::PP -e '
    for (@{decode_json(join "", <>)->{packages}}) { print "$_->{name}\n" if $_->{publish} && !@{$_->{publish}}; }
' "$stage/metadata")
without=()
for name in "${private[@]}"; do without+=(--exclude "$name"); done
CARGO_TARGET_DIR=$stage/target cargo package --workspace "${without[@]}" --no-verify --offline --locked --allow-dirty \
    >"$stage/said" 2>&1 || fail "$(cat "$stage/said")"
! grep -A3 '^warning' "$stage/said" >"$stage/warned" || fail "$(cat "$stage/warned")"
packed=0
for package in "$stage"/target/package/*.crate; do
    name=$(basename "$package" .crate)
    tar xzf "$package" -C "$stage" || fail "$name cannot be unpacked"
    for licence in LICENSE-MIT LICENSE-APACHE; do
        cmp -s "$licence" "$stage/$name/$licence" || fail "$name has another $licence than the workspace, or none"
    done
    packed=$((packed + 1))
done
# A release raises all of these, or none.
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
debian=$(sed -n '1s/.*(\([^)-]*\)-.*/\1/p' packaging/debian/changelog)
[ "$debian" = "$version" ] || fail "packaging/debian/changelog is of version $debian, the workspace of $version"
heads=$(grep '^## ' CHANGELOG.md)
case $heads in
"## Unreleased"*) ;;
*) fail "CHANGELOG.md does not begin with the section Unreleased" ;;
esac
! grep -nvE '^## (Unreleased|[0-9]+\.[0-9]+\.[0-9]+ \([0-9]{4}-[0-9]{2}-[0-9]{2}\))$' <<<"$heads" >"$stage/found" ||
    fail "CHANGELOG.md: a section is headed as VERSION (YEAR-MONTH-DAY): $(cat "$stage/found")"
[ "$packed" -gt 0 ] || fail "cargo package made no packages"
[ $wrong = 0 ] && echo "packages: $packed can be published"
exit $wrong
