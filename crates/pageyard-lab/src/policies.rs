//! Policies by name.

use pageyard::policy::{self, Decay, Engine, Linux612, Named, Packed, Rules, StaticPolicy};
use pageyard_trace::printable;

use crate::settings::Settings;

/// An unknown or malformed policy.
#[derive(Debug, thiserror::Error)]
#[error("{}{why}", place(.name, .why))]
pub struct PolicyError {
    /// The requested policy.
    pub name: String,
    /// What is wrong.
    pub why: String,
}

/// Returns what stands before the reason, unless that begins with the policy.
fn place(name: &str, why: &str) -> String {
    let name = printable(name);
    let says = why.strip_prefix("unknown policy ").and_then(|rest| rest.strip_prefix(&*name));
    if says.is_some_and(|rest| rest.starts_with(';')) {
        String::new()
    } else {
        format!("policy {name}: ")
    }
}

/// A policy with settings, ready to run.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Name in tables and on the command line.
    pub name: String,
    /// The policy's rules. Replays and the simulated machine use one instance of the core that
    /// takes the rules as a value.
    pub rules: Rules,
    /// Settings applied after the allocator is built.
    pub settings: Settings,
}

/// The packed engine, to which no modifier applies.
const PACKED: Named<&Rules> = Named {
    name: "Packed",
    about: "The [packed engine](https://docs.rs/pageyard/latest/pageyard/packed/): bitmaps, magazines and depots in \
            place of free lists and per-CPU lists. No modifier applies to it.",
    makes: &Packed::RULES,
};

/// Returns the policies that stand on their own: [`policy::POLICIES`] and `Packed`.
pub fn policies() -> impl Iterator<Item = &'static Named<&'static Rules>> {
    policy::POLICIES.iter().chain([&PACKED])
}

/// The policies that a replay runs by default.
pub const DEFAULT_POLICIES: &str = "Base,Step5,Step10,Linux612";

/// Maximum number of nested modifiers.
const MOST: usize = 32;

impl Choice {
    /// Returns the names of settings that change nothing: those of per-CPU lists on the packed engine.
    ///
    /// ```
    /// let choice = pageyard_lab::replay::by_name("Packed+high=400+min_free_kbytes=4096")?;
    /// assert_eq!(choice.without_effect().collect::<Vec<_>>(), ["high"]);
    /// # Ok::<(), pageyard_lab::replay::PolicyError>(())
    /// ```
    pub fn without_effect(&self) -> impl Iterator<Item = &str> {
        let packed = self.rules.engine == policy::Engine::Packed;
        self.settings.of_lists().filter(move |_| packed)
    }

    /// Returns whether ticks change the contents of the lists, so that their phase matters.
    pub fn ticks_matter(&self) -> bool {
        self.rules.engine == Engine::Packed || !matches!(self.rules.pcp.decay, Decay::None)
    }

    /// Returns the name without settings.
    pub(crate) fn policy(&self) -> &str {
        self.name.split('+').next().unwrap_or_default()
    }

    /// Returns this choice with settings for every column: its own of the same name are the more
    /// specific ones and stay.
    ///
    /// ```
    /// let choice = pageyard_lab::replay::by_name("Linux612+high=400")?;
    /// let settings = ["high=100".parse()?, "batch=31".parse()?];
    /// assert_eq!(choice.with_all(&settings).name, "Linux612+high=400+batch=31");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_all(self, settings: &[Settings]) -> Choice {
        let own = self.settings.clone();
        settings.iter().filter(|settings| !own.overlap(settings)).fold(self, Choice::with)
    }

    /// Returns this choice with more settings, applied after its own.
    #[must_use]
    pub fn with(mut self, settings: &Settings) -> Choice {
        self.settings.add(settings);
        self.name += &settings.to_string();
        self
    }
}

/// Returns the policy of this name: one of [`policies`], optionally nested in
/// [`policy::MODIFIERS`] and [`policy::NUMBERED`]. A modifier alone applies to [`Linux612`]. Each of the
/// [`Settings`] may follow as `+NAME=VALUE`. Case is ignored.
///
/// # Errors
/// Fails with [`PolicyError`], which says what is wrong.
///
/// ```
/// use pageyard_lab::replay::by_name;
///
/// let choice = by_name("vanilla<guarded<3, Base>>+high=400")?;
/// assert_eq!(choice.name, "Vanilla<Guarded<3, Base>>+high=400");
/// # Ok::<(), pageyard_lab::replay::PolicyError>(())
/// ```
pub fn by_name(text: &str) -> Result<Choice, PolicyError> {
    let wrong = |why| PolicyError { name: text.trim().to_owned(), why };
    let mut parts = text.split('+');
    let (policy, rules) = composed(parts.next().unwrap_or_default()).map_err(wrong)?;
    let mut settings = Settings::default();
    for part in parts {
        settings.add(&part.parse().map_err(|e| wrong(format!("{e}")))?);
    }
    Ok(Choice { name: format!("{policy}{settings}"), rules, settings })
}

/// Returns several policies, separated by commas.
///
/// # Errors
/// Fails as [`by_name`] does, for the first wrong name.
pub fn by_names(text: &str) -> Result<Vec<Choice>, PolicyError> {
    separated(text).map(by_name).collect()
}

/// Returns the columns of a table: policies as in [`by_names`].
///
/// # Errors
/// Fails as [`by_name`] does, for the first wrong name, and for one that is there twice.
pub fn columns(text: &str) -> Result<Vec<Choice>, PolicyError> {
    let columns = by_names(text)?;
    let is_twice = |&at: &usize| columns[..at].iter().any(|other| other.name == columns[at].name);
    match (1..columns.len()).find(is_twice) {
        Some(at) => Err(PolicyError {
            name: columns[at].name.clone(),
            why: "named twice; remove one of the names".into(),
        }),
        None => Ok(columns),
    }
}

/// Splits at commas outside angle brackets.
fn separated(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c: char| {
        depth += match c {
            '<' => 1,
            '>' => -1,
            _ => 0,
        };
        c == ',' && depth <= 0
    })
}

/// A parsed modifier.
enum Modifier {
    Plain(&'static policy::Named<fn(Rules) -> Rules>),
    Numbered(&'static policy::Numbered, u8),
}

/// Returns the canonical name and the rules.
fn composed(text: &str) -> Result<(String, Rules), String> {
    let mut around = Vec::new();
    let mut rest = text.trim();
    let (mut name, mut rules) = (String::new(), Linux612::RULES);
    while !rest.is_empty() || around.is_empty() {
        let (head, within) = match rest.split_once('<') {
            Some((head, within)) => {
                let within = within.strip_suffix('>');
                (head.trim(), within.ok_or(format!("{rest} lacks the closing >"))?.trim())
            }
            None => (rest, ""),
        };
        let same = |name: &str| name.eq_ignore_ascii_case(head);
        if same(PACKED.name) && !around.is_empty() {
            return Err("no modifier applies to Packed".to_owned());
        }
        if let Some(whole) = policies().find(|p| same(p.name)) {
            if !within.is_empty() {
                return Err(format!(
                    "{} is not a modifier and cannot wrap another policy",
                    whole.name
                ));
            }
            // `Linux612` is what a modifier applies to by default, so it is not named.
            if whole.name != Linux612::NAME || around.is_empty() {
                (name, rules) = (whole.name.to_owned(), *whole.makes);
            }
            break;
        }
        if around.len() == MOST {
            return Err(format!("more than {MOST} nested modifiers"));
        }
        if let Some(modifier) = policy::MODIFIERS.iter().find(|m| same(m.name)) {
            around.push(Modifier::Plain(modifier));
            rest = within;
        } else if let Some(modifier) = policy::NUMBERED.iter().find(|m| same(m.name)) {
            let (number, within) = within.split_once(',').unwrap_or((within, ""));
            let number = number.trim().parse().ok().filter(|&n| n <= modifier.most);
            let number = number.ok_or(format!(
                "{0} requires {1} of at most {2} and a policy, as in {0}<3, Base>",
                modifier.name, modifier.number, modifier.most
            ))?;
            around.push(Modifier::Numbered(modifier, number));
            rest = within.trim();
        } else {
            return Err(unknown(head));
        }
    }
    for modifier in around.iter().rev() {
        (name, rules) = match (modifier, name.as_str()) {
            (Modifier::Plain(m), "") => (m.name.to_owned(), (m.makes)(rules)),
            (Modifier::Plain(m), _) => (format!("{}<{name}>", m.name), (m.makes)(rules)),
            (Modifier::Numbered(m, n), "") => (format!("{}<{n}>", m.name), (m.makes)(*n, rules)),
            (Modifier::Numbered(m, n), _) => {
                (format!("{}<{n}, {name}>", m.name), (m.makes)(*n, rules))
            }
        };
    }
    Ok((name, rules))
}

fn unknown(name: &str) -> String {
    let names = |all: Vec<&str>| all.join(", ");
    let whole = names(policies().map(|p| p.name).collect());
    let numbered = policy::NUMBERED.iter().map(|m| m.name);
    let modifiers = names(policy::MODIFIERS.iter().map(|m| m.name).chain(numbered).collect());
    let what = if name.is_empty() {
        "a name is missing".to_owned()
    } else {
        format!("unknown policy {}", printable(name))
    };
    format!(
        "{what}; expected one of {whole}, or one in a modifier, as in Vanilla<Base>: {modifiers}"
    )
}

#[cfg(test)]
mod tests {
    use pageyard::policy::{
        Base, Guarded, NoHighOrder, Poisoned, Scale, SixBatches, Step5, Vanilla,
    };

    use super::*;

    fn why(text: &str) -> String {
        by_name(text).unwrap_err().to_string()
    }

    #[test]
    fn names() {
        assert_eq!(by_name("linux612").unwrap().name, "Linux612");
        assert!(by_name("Linux612").unwrap().ticks_matter());
        assert!(!by_name("TwoPassBulkFree<Base>").unwrap().ticks_matter());
        assert_eq!(by_names(DEFAULT_POLICIES).unwrap().len(), 4);
    }

    #[test]
    fn parsed_compositions_equal_their_types() {
        let rules = |text: &str| by_name(text).unwrap().rules;
        for p in policy::POLICIES {
            assert_eq!(rules(p.name), *p.makes);
        }
        for m in policy::MODIFIERS {
            assert_eq!(rules(m.name), (m.makes)(Linux612::RULES));
            assert_eq!(rules(&format!("{}<Step5>", m.name)), (m.makes)(Step5::RULES));
        }
        type Deep = NoHighOrder<Poisoned<Guarded<2, Vanilla<SixBatches<Base>>>>>;
        assert_eq!(
            rules(" NoHighOrder< poisoned<GUARDED< 2 ,Vanilla<SixBatches< Base >>>>> "),
            Deep::RULES
        );
        assert_eq!(rules("Guarded<5>"), Guarded::<5>::RULES);
        assert_eq!(rules("scale<0, BlockByBlock>").pcp, Scale::<0>::RULES.pcp);
        // The outermost modifier wins.
        assert_eq!(rules("Guarded<1, Guarded<4>>"), Guarded::<1>::RULES);
        assert_eq!(by_name("vanilla<linux612>").unwrap().name, "Vanilla");
    }

    #[test]
    fn several() {
        let names = |text: &str| -> Vec<String> {
            by_names(text).unwrap().into_iter().map(|c| c.name).collect()
        };
        assert_eq!(names("base, Guarded<3,Base>,Step5"), ["Base", "Guarded<3, Base>", "Step5"]);
        assert!(by_names("Base,").is_err() && by_names("").is_err());
        assert!(by_names("Vanilla<Base,Step5").is_err());
    }

    #[test]
    fn packed_is_a_policy_and_no_modifier_applies_to_it() {
        let choices = by_names("vanilla<Base>, packed, Packed+min_free_kbytes=4096").unwrap();
        let engines: Vec<_> = choices.iter().map(|c| (c.name.as_str(), c.rules.engine)).collect();
        let (exact, packed) = (Engine::Exact, Engine::Packed);
        let set = "Packed+min_free_kbytes=4096";
        assert_eq!(engines, [("Vanilla<Base>", exact), ("Packed", packed), (set, packed)]);
        assert!(why("Vanilla<Packed>").contains("no modifier applies to Packed"));
        assert!(why("Packed<Base>").contains("Packed is not a modifier"));
        assert!(why("Linux7").contains(", Linux61, Packed, or one in a modifier"));
    }

    #[test]
    fn parse_errors_are_specific() {
        for (text, says) in [
            ("Linux7", "unknown policy Linux7; expected one of Linux612, Base, Step1"),
            ("Vanilla<Bas>", "policy Vanilla<Bas>: unknown policy Bas; expected one of Linux612"),
            ("", "policy : a name is missing"),
            ("<Base>", "policy <Base>: a name is missing"),
            ("Base<Vanilla>", "Base is not a modifier and cannot wrap another policy"),
            ("Vanilla<Base", "Vanilla<Base lacks the closing >"),
            ("Guarded", "as in Guarded<3, Base>"),
            ("Guarded<6>", "an order of at most 5"),
            ("Guarded<Base>", "as in Guarded<3, Base>"),
            ("Scale<7>", "Scale requires a number of doublings of at most 6"),
            ("Base+high", "policy Base+high: high: expected NAME=VALUE"),
            ("Base+lists=3", "unknown knob \"lists\""),
        ] {
            let said = why(text);
            assert!(said.contains(says), "{text}: {said}");
        }
        let deep = "Vanilla<".repeat(100_000) + "Base" + &">".repeat(100_000);
        assert!(why(&deep).contains("more than 32 nested modifiers"));
    }
}
