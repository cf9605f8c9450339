//! Separated values: CSV of any table, and mmtests' own form of samples.

use super::set::Set;

/// Formats rows as comma-separated values, quoted where necessary (RFC 4180).
pub(super) fn csv(records: &[Vec<String>]) -> String {
    let quoted = |value: &String| {
        if value.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", value.replace('"', "\"\""))
        } else {
            value.clone()
        }
    };
    let line = |r: &Vec<String>| r.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n";
    records.iter().map(line).collect()
}

/// Formats every sample as a tab-separated line `metric factorA factorB interval value extra`: the
/// workload is factor A, the column factor B, the interval numbers samples from 1, and extra is the
/// unit. Tabs in names become blanks.
pub fn tsv(sets: &[Set]) -> String {
    let clean = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    let mut out = String::new();
    for set in sets {
        for m in &set.metrics {
            for (column, samples) in set.columns.iter().zip(&m.samples) {
                for (i, value) in samples.iter().enumerate() {
                    let (metric, unit) = (clean(&m.name), clean(&m.unit));
                    let (a, b) = (clean(&set.title()), clean(&column.name));
                    out += &format!("{metric}\t{a}\t{b}\t{}\t{value}\t{unit}\n", i + 1);
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_required() {
        let record = ["a", "b,c", "say \"so\""].map(String::from).to_vec();
        assert_eq!(csv(&[record]), "a,\"b,c\",\"say \"\"so\"\"\"\n");
    }
}
