//! Compares published figures with ours: the direction of each change, the order of the steps, and
//! the factor between the two.

use serde::Serialize;

/// The practical band: a smaller relative difference is no change.
const BAND: f64 = 0.01;

/// How the figures of a column are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// As indices against the first row, which is 100.
    Index,
    /// Directly with each other.
    Plain,
}

/// One quantity, step by step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// The quantity.
    pub name: String,
    /// Its unit; empty for a plain number.
    pub unit: &'static str,
    /// How it is compared.
    pub kind: Kind,
    /// The published figures; `None` where none was published.
    pub seed: Vec<Option<f64>>,
    /// Our figures.
    pub ours: Vec<Option<f64>>,
    /// The rows whose figures do not count, since a parameter of ours was derived from them
    /// ([`Anchor`](super::Anchor)).
    pub anchored: Vec<usize>,
    /// The agreement between the two.
    pub agreement: Agreement,
}

/// The agreement of a column with its published counterpart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Of the published changes against the first row that exceed 1%: how many have the same
    /// direction here and also exceed 1%, and how many there are.
    pub direction: (usize, usize),
    /// Of the pairs of rows whose published figures differ by more than 1%: how many are in the
    /// same order here, and how many there are.
    pub order: (usize, usize),
    /// The largest factor between the two, in either direction; `None` if one of them is 0, or if
    /// nothing can be compared.
    pub factor: Option<f64>,
}

impl Column {
    /// Creates a column of published figures and ours. With [`Kind::Index`], `ours` and `seed` are
    /// converted to indices here.
    pub fn new(
        name: impl Into<String>,
        unit: &'static str,
        kind: Kind,
        seed: &[Option<f64>],
        ours: &[Option<f64>],
    ) -> Column {
        let indexed = |figures: &[Option<f64>]| match (kind, figures.first().copied().flatten()) {
            (Kind::Index, Some(base)) if base != 0.0 => {
                figures.iter().map(|f| f.map(|f| 100.0 * f / base)).collect()
            }
            _ => figures.to_vec(),
        };
        let (seed, ours): (Vec<_>, Vec<_>) = (indexed(seed), indexed(ours));
        let agreement = Agreement::of(kind, &seed, &ours, &[]);
        Column { name: name.into(), unit, kind, seed, ours, anchored: Vec::new(), agreement }
    }

    /// Creates a column of our figures alone.
    pub(super) fn ours(
        name: impl Into<String>,
        unit: &'static str,
        ours: &[Option<f64>],
    ) -> Column {
        Column::new(name, unit, Kind::Plain, &vec![None; ours.len()], ours)
    }

    /// Leaves these rows out of the agreement, since a parameter of ours was derived from their
    /// published figures. An anchored first row remains the reference of the others.
    #[must_use]
    pub fn anchored_at(mut self, rows: &[usize]) -> Column {
        self.anchored = rows.to_vec();
        self.agreement = Agreement::of(self.kind, &self.seed, &self.ours, rows);
        self
    }
}

impl Agreement {
    fn of(kind: Kind, seed: &[Option<f64>], ours: &[Option<f64>], anchored: &[usize]) -> Agreement {
        // Only rows that have both figures.
        let rows: Vec<(usize, f64, f64)> = seed
            .iter()
            .zip(ours)
            .enumerate()
            .filter_map(|(i, (s, o))| Some((i, (*s)?, (*o)?)))
            .collect();
        let mut agreement = Agreement::default();
        let counts = |row: &usize| !anchored.contains(row);
        if let Some((&(0, seed, ours), others)) = rows.split_first() {
            for &(_, s, o) in others.iter().filter(|r| differs(r.1, seed) && counts(&r.0)) {
                let same = (s - seed).signum() * (o - ours) > 0.0 && differs(o, ours);
                agreement.direction.0 += usize::from(same);
                agreement.direction.1 += 1;
            }
        }
        for (i, a) in rows.iter().enumerate() {
            // Against the reference, an order is a direction: it counts where the other row does.
            let counted = |b: &&(usize, f64, f64)| counts(&a.0) && (b.0 == 0 || counts(&b.0));
            for b in rows[..i].iter().filter(|b| differs(a.1, b.1)).filter(counted) {
                agreement.order.0 += usize::from((a.1 - b.1).signum() * (a.2 - b.2) > 0.0);
                agreement.order.1 += 1;
            }
        }
        // The first row of an index is always 100, so it is skipped.
        let compared = rows.iter().filter(|r| (kind == Kind::Plain || r.0 > 0) && counts(&r.0));
        let factors = compared.map(|&(_, s, o)| {
            let factor = o / s;
            (factor.is_finite() && factor > 0.0).then(|| factor.max(1.0 / factor))
        });
        agreement.factor = factors.reduce(|a, b| Some(a?.max(b?))).flatten();
        agreement
    }

    /// Whether every published direction is reproduced, every pair of steps is in order, and no
    /// figure differs by more than this factor.
    pub fn holds(&self, factor: f64) -> bool {
        self.direction.0 == self.direction.1
            && self.order.0 == self.order.1
            && self.factor.is_some_and(|f| f <= factor)
    }
}

fn differs(a: f64, b: f64) -> bool {
    (a - b).abs() > BAND * a.abs().max(b.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: Kind, seed: &[f64], ours: &[f64]) -> Column {
        let some = |f: &[f64]| f.iter().map(|&f| Some(f)).collect::<Vec<_>>();
        Column::new("x", "", kind, &some(seed), &some(ours))
    }

    #[test]
    fn an_index_is_relative_to_the_first_row() {
        let c = column(Kind::Index, &[206.0, 199.0, 206.1], &[2.0, 1.0, 3.0]);
        assert_eq!(c.ours, [Some(100.0), Some(50.0), Some(150.0)]);
        // The third is no published change; the second differs from both others.
        assert_eq!(c.agreement.direction, (1, 1));
        assert_eq!(c.agreement.order, (2, 2));
        assert!((c.agreement.factor.unwrap() - 199.0 / 103.0).abs() < 1e-9);
    }

    #[test]
    fn opposite_and_tiny_changes_do_not_agree() {
        let c = column(Kind::Index, &[100.0, 90.0, 80.0], &[100.0, 99.5, 101.0]);
        assert_eq!(c.agreement.direction, (0, 2));
        assert_eq!(c.agreement.order, (1, 3));
        assert!(!c.agreement.holds(2.0));
    }

    #[test]
    fn anchored_rows_do_not_count() {
        // The second row is off by a factor of 9 and in the wrong direction.
        let plain = column(Kind::Plain, &[100.0, 300.0, 200.0], &[100.0, 33.0, 150.0]);
        assert_eq!(plain.agreement.direction, (1, 2));
        let anchored = plain.anchored_at(&[1]);
        assert_eq!((anchored.agreement.direction, anchored.agreement.order), ((1, 1), (1, 1)));
        assert!((anchored.agreement.factor.unwrap() - 200.0 / 150.0).abs() < 1e-9);
        // As a reference an anchored row still serves: the others are predictions against it.
        let first = column(Kind::Plain, &[100.0, 300.0], &[900.0, 2700.0]).anchored_at(&[0]);
        assert_eq!(first.agreement.direction, (1, 1));
        assert_eq!(first.agreement.factor, Some(9.0));
        let none = column(Kind::Index, &[100.0, 50.0], &[100.0, 50.0]).anchored_at(&[0, 1]);
        assert_eq!(none.agreement, Agreement::default());
    }

    #[test]
    fn missing_and_zero_figures_are_not_compared() {
        let seed = [Some(43.6), None, Some(9.8)];
        let c = Column::new("lock", "%", Kind::Plain, &seed, &[Some(10.0), Some(1.0), Some(0.0)]);
        assert_eq!(c.agreement.direction, (1, 1));
        assert_eq!(c.agreement.order, (1, 1));
        assert_eq!(c.agreement.factor, None, "nothing is no factor of something");
        let none = Column::new("x", "", Kind::Index, &[None, Some(1.0)], &[Some(1.0), None]);
        assert_eq!(none.agreement, Agreement::default());
        assert!(!none.agreement.holds(2.0));
    }
}
