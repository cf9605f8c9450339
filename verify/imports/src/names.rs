//! The names in a piece of code: its paths, and its `use` declarations as single imports.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{ItemUse, UseTree, Visibility};

/// One name of a `use` declaration.
pub(crate) struct Import {
    /// Segments of the path; without the `*` of a glob.
    pub(crate) path: Vec<String>,
    /// Local name of the import; `None` for a glob and for `as _`.
    pub(crate) name: Option<String>,
    pub(crate) is_glob: bool,
    pub(crate) is_public: bool,
}

/// Paths and imports of some code.
#[derive(Default)]
pub(crate) struct Names {
    /// Every path, up to the first segment that is not a plain name: `a::b` of `a::b::<C>::d`.
    /// Names after a dot are excluded.
    pub(crate) paths: Vec<Vec<String>>,
    pub(crate) imports: Vec<Import>,
}

impl Names {
    pub(crate) fn add_use(&mut self, item: &ItemUse) {
        // A leading `::` refers to another crate.
        if item.leading_colon.is_none() {
            let is_public = !matches!(item.vis, Visibility::Inherited);
            self.add_tree(&item.tree, &mut Vec::new(), is_public);
        }
    }

    fn add_tree(&mut self, tree: &UseTree, before: &mut Vec<String>, is_public: bool) {
        let mut add = |last: Option<String>, name, is_glob| {
            let path = before.iter().cloned().chain(last).collect();
            self.imports.push(Import { path, name, is_glob, is_public });
        };
        match tree {
            UseTree::Path(p) => {
                before.push(p.ident.to_string());
                self.add_tree(&p.tree, before, is_public);
                before.pop();
            }
            UseTree::Group(g) => g.items.iter().for_each(|t| self.add_tree(t, before, is_public)),
            UseTree::Glob(_) => add(None, None, true),
            UseTree::Name(n) if n.ident == "self" => add(None, before.last().cloned(), false),
            UseTree::Name(n) => add(Some(n.ident.to_string()), Some(n.ident.to_string()), false),
            UseTree::Rename(r) => {
                let last = (r.ident != "self").then(|| r.ident.to_string());
                add(last, (r.rename != "_").then(|| r.rename.to_string()), false);
            }
        }
    }

    /// Adds the names in `code`, including arguments of macros.
    pub(crate) fn add_code(&mut self, code: TokenStream) {
        let tokens: Vec<TokenTree> = code.into_iter().collect();
        let is =
            |at: usize, c| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Group(g) => self.add_code(g.stream()),
                TokenTree::Ident(i) if i == "use" => {
                    let end = (at..tokens.len()).find(|&end| is(end, ';')).unwrap_or(at);
                    let declaration = tokens[at - 1..tokens.len().min(end + 1)].iter().cloned();
                    // Parsing fails for the `use<'a>` of a return type.
                    if let Ok(item) = syn::parse2::<ItemUse>(declaration.collect()) {
                        self.add_use(&item);
                        at = end + 1;
                    }
                }
                TokenTree::Ident(first) => {
                    let start = at - 1;
                    let mut path = vec![first.to_string()];
                    while let (true, true, Some(TokenTree::Ident(next))) =
                        (is(at, ':'), is(at + 1, ':'), tokens.get(at + 2))
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    let before = |n: usize, c| start >= n && is(start - n, c);
                    let is_member = before(1, '.') && !before(2, '.');
                    let goes_on = before(1, ':') && before(2, ':');
                    if !is_member && !goes_on {
                        self.paths.push(path);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns whether `attributes` restrict an item to tests: `#[cfg(test)]`, or `test` as one of
/// `all`.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().filter(|a| a.path().is_ident("cfg")).any(|a| match &a.meta {
        syn::Meta::List(list) => needs_test(&list.tokens.clone().into_iter().collect::<Vec<_>>()),
        _ => false,
    })
}

fn needs_test(condition: &[TokenTree]) -> bool {
    match condition {
        [TokenTree::Ident(i)] => i == "test",
        [TokenTree::Ident(i), TokenTree::Group(g)]
            if i == "all" && g.delimiter() == Delimiter::Parenthesis =>
        {
            let parts: Vec<TokenTree> = g.stream().into_iter().collect();
            parts.split(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == ',')).any(needs_test)
        }
        _ => false,
    }
}
