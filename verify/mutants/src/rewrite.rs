//! Inserts the mutants of a file into its text, each guarded by a run-time check whether it is
//! selected.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::error::Result;
use crate::list::{Genre, Mutant};

/// A file with its mutants inserted.
pub struct Rewritten {
    pub text: String,
    /// Position in `text` of each mutant and of the expression that it changes.
    pub regions: Vec<Region>,
    /// Mutants in constants and in functions that constants call, where no run-time check is
    /// possible.
    pub constant: Vec<usize>,
    /// Mutants that cannot compile: an operator next to a `let`, or a change after which the
    /// expression does not parse.
    pub unviable: Vec<usize>,
}

pub struct Region {
    pub mutant: usize,
    pub range: Range<usize>,
    pub site: Range<usize>,
}

/// A place in the original text that has mutants.
struct Site {
    range: Range<usize>,
    form: Form,
}

enum Form {
    /// An expression, and its replacement in each mutant.
    Expression(Vec<(usize, String)>),
    /// A guard that is always true in one mutant and always false in another.
    Guard { always: Option<usize>, never: Option<usize> },
    /// An arm of a match, without a guard, that a mutant removes.
    Arm(usize),
    /// A keyword that is removed.
    Keyword,
    /// The start of a function, and the value that it returns instead in each mutant.
    Function(Vec<(usize, String)>),
}

/// Rewrites `text` with the `mutants` that are not in `dropped`. `switch` is the path of the
/// function that performs the check. Constant functions become ordinary ones, except those named in
/// `constant`.
pub fn rewrite(
    text: &str,
    mutants: &[(usize, &Mutant)],
    dropped: &HashSet<usize>,
    constant: &HashSet<String>,
    switch: &str,
) -> Result<Rewritten> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder {
        text,
        at: HashMap::new(),
        functions: constant,
        constant: 0,
        sites: Vec::new(),
        in_constants: Vec::new(),
        unviable: Vec::new(),
    };
    for (number, mutant) in mutants.iter().filter(|(number, _)| !dropped.contains(number)) {
        finder
            .at
            .entry((mutant.genre as u8, mutant.range.start))
            .or_default()
            .push((*number, mutant));
    }
    finder.visit_file(&file);
    if let Some((_, mutant)) = finder.at.values().flatten().next() {
        return Err(format!("{}: no such place", mutant.place).into());
    }
    // Sites nest. Of two with the same range, the outer one was found first.
    finder.sites.sort_by_key(|site| (site.range.start, usize::MAX - site.range.end));
    let mut writer =
        Writer { text, switch, sites: &finder.sites, out: String::new(), regions: Vec::new() };
    writer.copy(0..text.len());
    Ok(Rewritten {
        text: writer.out,
        regions: writer.regions,
        constant: finder.in_constants,
        unviable: finder.unviable,
    })
}

struct Finder<'a> {
    text: &'a str,
    /// Mutants by genre and first byte.
    at: HashMap<(u8, usize), Vec<(usize, &'a Mutant)>>,
    /// Functions that remain constant.
    functions: &'a HashSet<String>,
    /// Number of constants that enclose the visited node.
    constant: u32,
    sites: Vec<Site>,
    in_constants: Vec<usize>,
    unviable: Vec<usize>,
}

impl<'a> Finder<'a> {
    fn take(&mut self, genre: Genre, start: usize) -> Vec<(usize, &'a Mutant)> {
        let found = self.at.remove(&(genre as u8, start)).unwrap_or_default();
        if self.constant > 0 {
            self.in_constants.extend(found.iter().map(|(number, _)| number));
            return Vec::new();
        }
        found
    }

    fn push(&mut self, range: Range<usize>, form: Form) {
        self.sites.push(Site { range, form });
    }

    /// Adds the mutants of an expression, each of which replaces `part` with its replacement.
    fn expression(
        &mut self,
        range: Range<usize>,
        part: Range<usize>,
        found: Vec<(usize, &'a Mutant)>,
    ) {
        let mut changed = Vec::new();
        for (number, mutant) in found {
            let before = &self.text[range.start..part.start];
            let after = &self.text[part.end..range.end];
            let expression = format!("{before}{}{after}", mutant.replacement);
            match syn::parse_str::<syn::Expr>(&expression) {
                Ok(_) => changed.push((number, expression)),
                Err(_) => self.unviable.push(number),
            }
        }
        if !changed.is_empty() {
            self.push(range, Form::Expression(changed));
        }
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        self.visit_signature(signature);
        let Some(first) = block.stmts.first() else { return };
        let constant =
            signature.constness.is_some() && self.functions.contains(&signature.ident.to_string());
        if let Some(keyword) = signature.constness.filter(|_| !constant) {
            self.push(bytes(&keyword), Form::Keyword);
        }
        self.constant += u32::from(constant);
        let found = self.take(Genre::FnValue, bytes(first).start);
        if !found.is_empty() {
            let start = bytes(&block.brace_token.span.open()).end;
            let returned =
                found.into_iter().map(|(number, mutant)| (number, mutant.replacement.clone()));
            self.push(start..start, Form::Function(returned.collect()));
        }
        self.visit_block(block);
        self.constant -= u32::from(constant);
    }

    fn constant(&mut self, expression: &syn::Expr) {
        self.constant += 1;
        self.visit_expr(expression);
        self.constant -= 1;
    }
}

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

/// Returns whether a condition contains `let`. It then cannot be copied into parentheses or joined
/// with `||`.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.constant(&item.expr);
    }

    fn visit_item_static(&mut self, item: &'a syn::ItemStatic) {
        self.constant(&item.expr);
    }

    fn visit_impl_item_const(&mut self, item: &'a syn::ImplItemConst) {
        self.constant(&item.expr);
    }

    fn visit_trait_item_const(&mut self, item: &'a syn::TraitItemConst) {
        if let Some((_, expression)) = &item.default {
            self.constant(expression);
        }
    }

    fn visit_type_array(&mut self, array: &'a syn::TypeArray) {
        self.constant(&array.len);
    }

    fn visit_expr_repeat(&mut self, repeat: &'a syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
        self.constant(&repeat.len);
    }

    fn visit_expr_const(&mut self, block: &'a syn::ExprConst) {
        self.constant += 1;
        visit::visit_expr_const(self, block);
        self.constant -= 1;
    }

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        let operator = bytes(&binary.op);
        let found = self.take(Genre::BinaryOperator, operator.start);
        if has_let(&binary.left) || has_let(&binary.right) {
            self.unviable.extend(found.iter().map(|(number, _)| number));
        } else {
            self.expression(bytes(binary), operator, found);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'a syn::ExprUnary) {
        let operator = bytes(&unary.op);
        let found = self.take(Genre::UnaryOperator, operator.start);
        self.expression(bytes(unary), operator, found);
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_struct(&mut self, expression: &'a syn::ExprStruct) {
        for pair in expression.fields.pairs() {
            let found = self.take(Genre::StructField, bytes(pair.value()).start);
            let mut field = bytes(pair.value());
            if let Some(comma) = pair.punct() {
                field.end = bytes(comma).end;
            }
            self.expression(bytes(expression), field, found);
        }
        visit::visit_expr_struct(self, expression);
    }

    fn visit_expr_match(&mut self, expression: &'a syn::ExprMatch) {
        // Without a wildcard arm, a match needs all other arms.
        let rest = |arm: &syn::Arm| matches!(arm.pat, syn::Pat::Wild(_)) && arm.guard.is_none();
        if !expression.arms.iter().any(rest) {
            for arm in &expression.arms {
                let found = self.take(Genre::MatchArm, bytes(arm).start);
                self.unviable.extend(found.iter().map(|(number, _)| number));
            }
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        let deleted = self.take(Genre::MatchArm, bytes(arm).start);
        let guard = arm.guard.as_ref().map(|(_, guard)| bytes(guard));
        for (number, _) in deleted {
            match guard.clone() {
                Some(guard) => self.push(guard, Form::Guard { always: None, never: Some(number) }),
                None => {
                    let end = bytes(&arm.pat).end;
                    self.push(end..end, Form::Arm(number));
                }
            }
        }
        if let Some(guard) = guard {
            let found = self.take(Genre::MatchArmGuard, guard.start);
            let replaced = |by: &str| {
                found.iter().find(|(_, mutant)| mutant.replacement == by).map(|(number, _)| *number)
            };
            let (always, never) = (replaced("true"), replaced("false"));
            if always.is_some() || never.is_some() {
                self.push(guard, Form::Guard { always, never });
            }
        }
        visit::visit_arm(self, arm);
    }
}

struct Writer<'a> {
    text: &'a str,
    switch: &'a str,
    sites: &'a [Site],
    out: String,
    regions: Vec<Region>,
}

impl Writer<'_> {
    /// Copies a range of the original, rewriting the sites in it.
    fn copy(&mut self, range: Range<usize>) {
        let mut from = range.start;
        while let Some((site, rest)) = self.sites.split_first() {
            if site.range.start > range.end || site.range.end > range.end {
                break;
            }
            self.sites = rest;
            self.out.push_str(&self.text[from..site.range.start]);
            self.site(site);
            from = site.range.end;
        }
        self.out.push_str(&self.text[from..range.end]);
    }

    fn site(&mut self, site: &Site) {
        let start = self.out.len();
        let first = self.regions.len();
        match &site.form {
            Form::Expression(changed) => {
                self.out.push('(');
                for (number, expression) in changed {
                    self.mutant(*number, |switch| format!("if {switch} {{ {expression} }}"));
                    self.out.push_str(" else ");
                }
                self.out.push_str("{ ");
                self.copy(site.range.clone());
                self.out.push_str(" })");
            }
            Form::Guard { always, never } => {
                self.out.push('(');
                if let Some(number) = always {
                    self.mutant(*number, |switch| format!("{switch} || "));
                }
                if let Some(number) = never {
                    self.mutant(*number, |switch| format!("!{switch} && "));
                }
                self.out.push('(');
                self.copy(site.range.clone());
                self.out.push_str("))");
            }
            Form::Keyword => {}
            Form::Arm(number) => self.mutant(*number, |switch| format!(" if !{switch}")),
            Form::Function(returned) => {
                for (number, value) in returned {
                    self.mutant(*number, |switch| format!(" if {switch} {{ return {value}; }}"));
                }
            }
        }
        let range = start..self.out.len();
        // Regions of nested sites are already set.
        for region in &mut self.regions[first..] {
            if region.site.is_empty() {
                region.site = range.clone();
            }
        }
    }

    fn mutant(&mut self, number: usize, text: impl FnOnce(&str) -> String) {
        let start = self.out.len();
        let text = text(&format!("{}({number})", self.switch));
        write!(self.out, "{text}").expect("a string grows");
        self.regions.push(Region { mutant: number, range: start..self.out.len(), site: 0..0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rewrites with mutants given as genre, replaced text (its first occurrence) and replacement.
    fn rewritten(text: &str, changes: &[(Genre, &str, &str)]) -> Rewritten {
        let mutants: Vec<Mutant> = changes
            .iter()
            .map(|&(genre, part, replacement)| {
                let start = text.find(part).expect("the part is in the text");
                Mutant {
                    file: String::new(),
                    genre,
                    range: start..start + part.len(),
                    replacement: replacement.to_owned(),
                    name: String::new(),
                    place: part.to_owned(),
                }
            })
            .collect();
        let numbered: Vec<_> = mutants.iter().enumerate().collect();
        rewrite(text, &numbered, &HashSet::new(), &HashSet::new(), "mutant").expect("it parses")
    }

    #[test]
    fn operators_are_selected_at_run_time() {
        let changes = [
            (Genre::BinaryOperator, "<", "<="),
            (Genre::BinaryOperator, "<", ">"),
            (Genre::BinaryOperator, "+", "-"),
        ];
        let rewritten = rewritten("fn f(a: u32) -> bool { a + 1 < 2 }", &changes);
        let expected = "fn f(a: u32) -> bool { (if mutant(0) { a + 1 <= 2 } else if mutant(1) { a + 1 > 2 } \
                        else { (if mutant(2) { a - 1 } else { a + 1 }) < 2 }) }";
        assert_eq!(rewritten.text, expected);
        let region =
            rewritten.regions.iter().find(|region| region.mutant == 2).expect("it is there");
        assert_eq!(&rewritten.text[region.range.clone()], "if mutant(2) { a - 1 }");
    }

    #[test]
    fn functions_guards_and_arms_test_the_switch() {
        let changes = [
            (Genre::FnValue, "match", "7"),
            (Genre::MatchArm, "1 =>", ""),
            (Genre::MatchArmGuard, "a > 3", "true"),
            (Genre::MatchArmGuard, "a > 3", "false"),
        ];
        let rewritten = rewritten(
            "const fn f(a: u32) -> u32 { match a { 1 => 2, _ if a > 3 => 4, _ => 5 } }",
            &changes,
        );
        let expected = " fn f(a: u32) -> u32 { if mutant(0) { return 7; } match a { 1 if !mutant(1) => 2, \
                        _ if (mutant(2) || !mutant(3) && (a > 3)) => 4, _ => 5 } }";
        assert_eq!(rewritten.text, expected);
    }

    #[test]
    fn constants_and_let_chains_have_no_mutants() {
        let text = "const C: u32 = 1 + 2; fn f(a: Option<u32>) -> u32 { if let Some(b) = a && b == 1 { b } else { 0 } }";
        let changes = [
            (Genre::BinaryOperator, "+", "-"),
            (Genre::BinaryOperator, "&&", "||"),
            (Genre::BinaryOperator, "==", "!="),
        ];
        let rewritten = rewritten(text, &changes);
        assert_eq!((rewritten.constant, rewritten.unviable), (vec![0], vec![1]));
        assert!(rewritten.text.contains("&& (if mutant(2) { b != 1 } else { b == 1 })"));
    }
}
