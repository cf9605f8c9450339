#!/usr/bin/env bash
# What clippy does not see:
#
# - A value that acts when it is dropped, made as the argument of a call that may throw it away.
#   `flag.then_some(Guard)` makes a guard, and drops it, where the flag is false, so that a lock which
#   another thread holds is released. `then(|| Guard)` does not.
# - A lock of the host crate's that held.rs does not check: one of the standard library's.
#
#     scripts/lint.sh
#
# Prints each place as FILE:LINE and fails if there is any. Needs git and perl.
set -euo pipefail
cd "$(dirname "$0")/.."

# Calls that evaluate their argument whether they use it or not.
calls='then_some|unwrap_or|map_or|ok_or|or|and|xor'

# eager FILE...: places in these files.
eager() {
    perl -0777 -e '
        my $calls = shift;
        my (%drop, %own, %text);
        my $crate = sub { $_[0] =~ m{^(crates/[^/]+)/} ? $1 : "" };
        for my $file (@ARGV) {
            open my $in, "<", $file or die "$file: $!\n";
            $text{$file} = <$in>;
            # Comments may name what they warn of; line numbers stay.
            $text{$file} =~ s{//[^\n]*}{}g;
            my $here = $crate->($file);
            $own{$here}{$1} //= 0 while $text{$file} =~ /\b(?:struct|enum)\s+(\w+)/g;
            $drop{$1} = $own{$here}{$1} = 1
                while $text{$file} =~ /\bDrop\s+for\s+(?:\w+::)*(\w+)/g;
        }
        my ($parens, $found);
        $parens = qr/\((?:[^()]++|(??{$parens}))*\)/;
        for my $file (@ARGV) {
            # A name means the type of its own crate, where there is one.
            my $own = $own{$crate->($file)};
            my $types = join "|", grep { $own->{$_} // 1 } sort keys %drop or next;
            while ($text{$file} =~ /\.(?:$calls)($parens)/g) {
                my ($at, $what) = (pos($text{$file}) - length $1, $1);
                # What a closure makes is made when it is called.
                next if $what =~ /\|/;
                # A value of the type: built, or made by one of its functions. After the name of
                # another type it is a variant of that.
                my $made = 0;
                while ($what =~ /(?<![\w:])((?:\w+::)*)(?:$types)\s*(?:[({,)]|::\s*\w+\s*\()/g) {
                    $made = 1 unless $1 =~ /\b[A-Z]\w*::$/;
                }
                next unless $made;
                my $line = 1 + (substr($text{$file}, 0, $at) =~ tr/\n//);
                $what =~ s/\s+/ /g;
                print "$file:$line: $what is made, and dropped, also where it is not used\n";
                $found = 1;
            }
        }
        exit($found ? 1 : 0);
    ' "$calls" "$@"
}

# The check itself: it finds each of these and nothing else.
planted=$(mktemp)
trap 'rm -f "$planted"' EXIT
cat >"$planted" <<'RUST'
impl Drop for Unit { fn drop(&mut self) {} }
impl<T> Drop for Tuple<'_, T> { fn drop(&mut self) {} }
impl Drop for guard::Named { fn drop(&mut self) {} }
fn wrong() {
    free.then_some(Unit); // line 5
    lock.compare_exchange(a, b).is_ok().then_some(Tuple(&self.0)); // line 6
    is.then_some(
        Named { a: f(1) }, // line 7, where the argument begins
    );
    is.then_some(Some(Tuple::new(1))); // line 10
    other.unwrap_or(Unit); // line 11
}
fn right() {
    free.then(|| Unit);
    free.then_some(United);
    free.then_some(unit);
    free.then_some(Error::Unit);
    free.ok_or(Error::Other(Other::Tuple(1)));
    // free.then_some(Unit)
}
RUST
lines=$(eager "$planted" | cut -d: -f2 | tr '\n' ' ' || true)
if [ "$lines" != "5 6 7 10 11 " ]; then
    echo "the check does not find its planted mistakes: lines $lines" >&2
    exit 1
fi

# unchecked FILE...: the standard library's locks outside tests.
unchecked() {
    perl -0777 -e '
        my $found;
        for my $file (@ARGV) {
            open my $in, "<", $file or die "$file: $!\n";
            my $text = <$in>;
            $text =~ s{//[^\n]*}{}g;
            # The module of tests stands last.
            $text =~ s/^#\[cfg\((?:all\()?test\b.*?\)\]\nmod tests \{.*//ms;
            while ($text =~ /(?<!crate::)\bsync::(?:\{[^;]*?\b)?((?:Mutex|RwLock|Condvar)\b(?!Guard))/g) {
                my $line = 1 + (substr($text, 0, $-[1]) =~ tr/\n//);
                print "$file:$line: a $1 that held.rs does not check\n";
                $found = 1;
            }
        }
        exit($found ? 1 : 0);
    ' "$@"
}
cat >"$planted" <<'RUST'
use std::sync::Mutex; // line 1
use std::sync::{
    Arc, RwLock, // line 3
};
struct S(std::sync::Mutex<u8>, sync::Condvar); // line 5, twice
use std::sync::{Arc, MutexGuard};
use crate::sync::{Class, Mutex};
// use std::sync::Mutex;
#[cfg(test)]
mod tests {
    use std::sync::Mutex;
}
RUST
lines=$(unchecked "$planted" | cut -d: -f2 | tr '\n' ' ' || true)
if [ "$lines" != "1 3 5 5 " ]; then
    echo "the check of locks does not find its planted mistakes: lines $lines" >&2
    exit 1
fi

mapfile -t files < <(git ls-files '*.rs')
found=0
eager "${files[@]}" || found=1
mapfile -t files < <(git ls-files 'crates/pageyard-host/src/*.rs' ':!*/held.rs')
unchecked "${files[@]}" || found=1
exit $found
