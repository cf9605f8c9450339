#!/usr/bin/env bash
# Holds docs/orderings.md against the sources: every atomic operation that is not only Relaxed has a row of its own, every
# file whose operations are all Relaxed is named in the second table, and no row is left over.
#
#     scripts/orderings.sh          names what differs; fails if anything does
#     scripts/orderings.sh --list   prints what the sources have
set -euo pipefail
cd "$(dirname "$0")/.."
listed=docs/orderings.md

# FILE OPERATION, as `taken.load(Acquire)`, with how often it is there if more than once; for Relaxed alone FILE and nothing. Tests and comments are left out.
sources() {
    find crates/pageyard/src crates/pageyard-report/src crates/pageyard-host/src crates/pageyard-capi-core/src crates/pageyard-capi/src \
        -name '*.rs' ! -name tests.rs ! -path '*/tests/*' ! -name miri.rs -print0 | sort -z | xargs -0 perl -0777 -ne '
        my $file = $ARGV; $file =~ s{^crates/}{}; $file =~ s{/src/}{/};
        s{^\s*#\[cfg\(test\)\]\s*\n\s*mod tests \{.*}{}ms;
        s{//[^\n]*}{}g; s{^\s*(pub(\(crate\))? )?use [^;]*;}{}gms;
        my ($relaxed, %times) = (0);
        # The last name before the call, and the arguments up to the closing bracket.
        while (/(?:(\w+)(?:\[[^\]]*\]|\([^()]*\))?\s*\.\s*)?\b(load|store|swap|compare_exchange(?:_weak)?|fetch_\w+|fence|compiler_fence)(\((?:[^()]|(?3))*\))/g) {
            my ($name, $call, $arguments) = ($1 // "", $2, $3);
            my @orders = $arguments =~ /\b(Relaxed|Acquire|Release|AcqRel|SeqCst)\b/g;
            next unless @orders;
            if (grep { $_ ne "Relaxed" } @orders) {
                $times{($name eq "" ? "" : "$name.") . "$call(" . join(", ", @orders) . ")"}++;
            } else { $relaxed++ }
        }
        print "$file $_", $times{$_} > 1 ? " x$times{$_}" : "", "\n" for sort keys %times;
        print "$file\n" if $relaxed;
        '
}
if [ "${1:-}" = --list ]; then
    sources | sort -u
    exit
fi
# Rows are | `FILE` | `OPERATION` | ..., and | `FILE`, `FILE` | ... in the second table.
rows() {
    perl -ne '
        $second = 1 if /^## Relaxed/;
        next unless /^\| `/;
        my @cells = split /\s*\|\s*/;
        my @names = $cells[1] =~ /`([^`]+)`/g;
        if ($second) { print "$_\n" for @names }
        else { my ($op) = $cells[2] =~ /`([^`]+)`/; print "$names[0] $op\n" }
    ' "$listed"
}
differences=$(comm -3 <(sources | sort -u) <(rows | sort -u) |
    sed "s|^\t|    $listed only: |; t; s|^|    sources only: |")
if [ -n "$differences" ]; then
    printf 'orderings: the sources and %s differ:\n%s\n' "$listed" "$differences" >&2
    exit 1
fi
echo "orderings: $(rows | grep -c ' ') operations with an ordering, $(rows | grep -vc ' ') files of relaxed ones"
