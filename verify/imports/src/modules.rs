//! The modules of a crate: what each defines and names, and which file defines the target of a
//! path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{ImplItem, Item, TraitItem};

use crate::names::{Names, is_for_tests};

/// Maximum number of re-exports that a path may pass through. A `use` of another crate's name can
/// lead back to itself.
const REEXPORTS: u32 = 12;

/// The modules of a crate, read from its root file.
pub struct Crate {
    /// The root comes first, and each module precedes its submodules.
    modules: Vec<Module>,
}

struct Module {
    parent: usize,
    file: PathBuf,
    /// Folder that contains the submodules.
    folder: PathBuf,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    names: Names,
}

/// Target of a path.
#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    /// An item of this module.
    Item(usize),
}

impl Crate {
    /// Reads the crate whose root is the file `root`. `read` returns a file's text.
    ///
    /// # Panics
    ///
    /// Panics if the root or the file of a module cannot be read or parsed.
    pub fn read(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Crate {
        let mut c = Crate { modules: Vec::new() };
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        c.add_file(0, root.to_owned(), folder, read);
        c
    }

    fn add_file(
        &mut self,
        parent: usize,
        file: PathBuf,
        folder: PathBuf,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> usize {
        let text = read(&file).unwrap_or_else(|| panic!("{}: cannot be read", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.add_module(parent, file, folder, parsed.items, read)
    }

    fn add_module(
        &mut self,
        parent: usize,
        file: PathBuf,
        folder: PathBuf,
        items: Vec<Item>,
        read: &dyn Fn(&Path) -> Option<String>,
    ) -> usize {
        let me = self.modules.len();
        self.modules.push(Module {
            parent,
            file,
            folder,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            names: Names::default(),
        });
        for item in items {
            self.add_item(me, item, read);
        }
        me
    }

    fn add_item(&mut self, me: usize, mut item: Item, read: &dyn Fn(&Path) -> Option<String>) {
        let attributes: &[syn::Attribute] = match &item {
            Item::Const(i) => &i.attrs,
            Item::Enum(i) => &i.attrs,
            Item::Fn(i) => &i.attrs,
            Item::Impl(i) => &i.attrs,
            Item::Macro(i) => &i.attrs,
            Item::Mod(i) => &i.attrs,
            Item::Static(i) => &i.attrs,
            Item::Struct(i) => &i.attrs,
            Item::Trait(i) => &i.attrs,
            Item::Type(i) => &i.attrs,
            Item::Union(i) => &i.attrs,
            Item::Use(i) => &i.attrs,
            _ => &[],
        };
        if is_for_tests(attributes) {
            return;
        }
        let module = &mut self.modules[me];
        let defined = match &mut item {
            Item::Use(i) => return module.names.add_use(i),
            Item::Mod(i) => {
                let name = i.ident.to_string();
                let (file, folder) = (module.file.clone(), module.folder.join(&name));
                let child = match i.content.take() {
                    Some((_, items)) => self.add_module(me, file, folder, items, read),
                    None => {
                        let mut file = folder.with_extension("rs");
                        if let Some(path) = i.attrs.iter().find_map(given_path) {
                            file = module.file.with_file_name(path);
                        } else if read(&file).is_none() {
                            file = folder.join("mod.rs");
                        }
                        self.add_file(me, file, folder, read)
                    }
                };
                self.modules[me].children.insert(name, child);
                return;
            }
            Item::Const(i) => Some(&i.ident),
            Item::Enum(i) => Some(&i.ident),
            Item::Fn(i) => Some(&i.sig.ident),
            Item::Macro(i) => i.ident.as_ref(),
            Item::Static(i) => Some(&i.ident),
            Item::Struct(i) => Some(&i.ident),
            Item::Trait(i) => {
                i.items.retain(|i| !matches!(i, TraitItem::Fn(f) if is_for_tests(&f.attrs)));
                Some(&i.ident)
            }
            Item::Type(i) => Some(&i.ident),
            Item::Union(i) => Some(&i.ident),
            Item::Impl(i) => {
                i.items.retain(|i| !matches!(i, ImplItem::Fn(f) if is_for_tests(&f.attrs)));
                None
            }
            _ => None,
        };
        module.items.extend(defined.map(ToString::to_string));
        module.names.add_code(item.to_token_stream());
    }

    /// Returns the files.
    pub fn files(&self) -> BTreeSet<&Path> {
        self.modules.iter().map(|m| &*m.file).collect()
    }

    /// Returns pairs of files of which the first names an item that the second defines, each with
    /// an example of such a path.
    pub fn imports(&self) -> BTreeMap<(&Path, &Path), String> {
        let mut imports = BTreeMap::new();
        for (me, module) in self.modules.iter().enumerate() {
            let named: BTreeSet<&String> = module.names.paths.iter().map(|p| &p[0]).collect();
            let used = module.names.imports.iter().filter(|i| !i.is_glob);
            // Skip a re-export of an item that a submodule defines.
            let used = used.filter(|i| {
                let is_own =
                    |to| matches!(to, Target::Item(to) if to != me && self.is_within(to, me));
                let reexports =
                    i.is_public && self.resolve(me, &i.path, REEXPORTS).is_some_and(is_own);
                !reexports || i.name.as_ref().is_some_and(|n| named.contains(n))
            });
            let is_imported =
                |name| module.names.imports.iter().any(|i| i.name.as_ref() == Some(name));
            // A single name is defined or imported by the module itself, unless it comes from a
            // glob.
            let paths = module.names.paths.iter().filter(|p| p.len() > 1 || !is_imported(&p[0]));
            for path in used.map(|i| &i.path).chain(paths) {
                if let Some(Target::Item(to)) = self.resolve(me, path, REEXPORTS) {
                    let to = &*self.modules[to].file;
                    if *to != module.file {
                        imports.entry((&*module.file, to)).or_insert_with(|| path.join("::"));
                    }
                }
            }
        }
        imports
    }

    /// Returns the groups of sibling modules. Each module is represented by its files and those of
    /// its submodules.
    pub fn siblings(&self) -> Vec<Vec<BTreeSet<&Path>>> {
        let files = |of: usize| {
            let within = (of..self.modules.len()).filter(|&m| self.is_within(m, of));
            within.map(|m| &*self.modules[m].file).collect()
        };
        self.modules
            .iter()
            .map(|m| m.children.values().map(|&child| files(child)).collect())
            .collect()
    }

    fn is_imported(&self, module: usize, name: &str) -> bool {
        self.modules[module].names.imports.iter().any(|i| i.name.as_deref() == Some(name))
    }

    fn is_within(&self, mut module: usize, of: usize) -> bool {
        while module > of {
            module = self.modules[module].parent;
        }
        module == of
    }

    /// Returns the target of `path` in module `from`. Returns `None` for names of other crates,
    /// local names and methods.
    fn resolve(&self, from: usize, path: &[String], reexports: u32) -> Option<Target> {
        let mut at = from;
        for (i, name) in path.iter().enumerate() {
            let is_last = i + 1 == path.len();
            at = match &**name {
                "crate" => 0,
                "self" => at,
                "super" => self.modules[at].parent,
                name => match self.look_up(at, name, !is_last, reexports) {
                    Some(Target::Module(m)) => m,
                    Some(item) => return Some(item),
                    // Defined by a macro, unless it comes from another crate.
                    None => {
                        return (i > 0 && !self.is_imported(at, name)).then_some(Target::Item(at));
                    }
                },
            };
        }
        Some(Target::Module(at))
    }

    /// Resolves `name` in the scope of `module`. If `more` of the path follows, modules take
    /// precedence over items, otherwise items over modules.
    fn look_up(&self, at: usize, name: &str, more: bool, reexports: u32) -> Option<Target> {
        let module = &self.modules[at];
        let reexports = reexports.checked_sub(1)?;
        let child = || module.children.get(name).map(|&m| Target::Module(m));
        let item = || module.items.contains(name).then_some(Target::Item(at));
        let imported = |wants_module| {
            let imports = module.names.imports.iter().filter(|i| i.name.as_deref() == Some(name));
            let mut targets = imports.filter_map(|i| self.resolve(at, &i.path, reexports));
            targets.find(|t| matches!(t, Target::Module(_)) == wants_module)
        };
        let glob = || {
            let globs = module.names.imports.iter().filter(|i| i.is_glob);
            globs.filter_map(|i| self.resolve(at, &i.path, reexports)).find_map(|t| match t {
                Target::Module(of) if of != at => self.look_up(of, name, more, reexports),
                _ => None,
            })
        };
        if more {
            child()
                .or_else(|| imported(true))
                .or_else(item)
                .or_else(|| imported(false))
                .or_else(glob)
        } else {
            item()
                .or_else(|| imported(false))
                .or_else(child)
                .or_else(|| imported(true))
                .or_else(glob)
        }
    }
}

/// Returns the file of `#[path = "..."]`.
fn given_path(attribute: &syn::Attribute) -> Option<String> {
    match &attribute.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. })
            if attribute.path().is_ident("path") =>
        {
            Some(path.value())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the imports of a crate with these files, the first of which is its root. `a b` means
    /// that `a.rs` imports `b.rs`.
    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let read = |path: &Path| {
            let text = files.iter().find(|(name, _)| Path::new(name) == path)?.1;
            Some(text.to_owned())
        };
        let c = Crate::read(Path::new(files[0].0), &read);
        let name = |file: &Path| file.with_extension("").display().to_string();
        c.imports().into_keys().map(|(from, to)| format!("{} {}", name(from), name(to))).collect()
    }

    #[test]
    fn uses_and_paths_resolve_to_the_defining_file() {
        let b = "pub struct B; pub mod inner { pub fn f() {} }";
        for a in [
            "use crate::b::B;",
            "use crate::b::{self, B as C};",
            "use crate::b; fn f() -> b::B { todo!() }",
            "use crate::b::*; fn f(_: B) {}",
            "use super::b::inner::f;",
            "fn f() { crate::b::inner::f() }",
            "fn f() { use crate::b::inner; inner::f() }",
            "fn f() { assert!(crate::b::inner::f() == ()) }",
            "mod m { use crate::b::B; }",
            "impl Iterator for crate::b::B {}",
        ] {
            assert_eq!(
                imports(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", b)]),
                ["a b"],
                "{a}"
            );
        }
    }

    #[test]
    fn modules_other_crates_members_and_tests_are_no_imports() {
        let b = "pub struct B;";
        for a in [
            "use crate::b;",
            "pub(in crate::a) fn f() {}",
            "use b::B; use ::b::B as C; use std::b::B as D;",
            "fn f(x: X) { x.b::<u8>(); x.b; (0..b).b() }",
            "#[cfg(test)] mod tests { use crate::b::B; }",
            "#[cfg(all(test, feature = \"x\"))] use crate::b::B;",
            "struct A; impl A { #[cfg(test)] fn f() -> crate::b::B { todo!() } }",
            "fn f() -> impl Sized + use<> { 1 }",
        ] {
            assert_eq!(
                imports(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", b)]),
                [""; 0],
                "{a}"
            );
        }
    }

    #[test]
    fn reexports_are_followed() {
        let a = ("a/mod.rs", "mod x; mod y; pub use x::X;");
        let files = [("lib.rs", "mod a; pub use a::X as Z;"), a, ("a/x.rs", "pub struct X;")];
        let through = |y| imports(&[files[0], files[1], files[2], ("a/y.rs", y)]);
        for y in ["use super::X;", "use crate::Z;", "use crate::a::X;"] {
            assert_eq!(through(y), ["a/y a/x"], "{y}");
        }
    }

    #[test]
    fn a_parent_imports_what_it_uses_of_its_children() {
        let child = ("a/x.rs", "use super::A; pub struct X; impl X { pub fn new() {} }");
        let a = |text| imports(&[("lib.rs", "mod a;"), ("a/mod.rs", text), child]);
        assert_eq!(a("mod x; pub use x::X; pub struct A;"), ["a/x a/mod"]);
        assert_eq!(a("mod x; pub use x::X; pub struct A(X);"), ["a/mod a/x", "a/x a/mod"]);
        assert_eq!(a("mod x; use x::X; pub struct A;"), ["a/mod a/x", "a/x a/mod"]);
        assert_eq!(a("mod x; pub struct A(x::X);"), ["a/mod a/x", "a/x a/mod"]);
    }

    #[test]
    fn modules_and_items_may_share_a_name() {
        let files =
            [("lib.rs", "mod a; mod f; pub use f::f;"), ("f.rs", "pub fn f() {} pub fn g() {}")];
        for a in ["use crate::f;  fn h() { f::g() }", "use crate::f::g;", "fn h() { crate::f() }"] {
            assert_eq!(imports(&[files[0], files[1], ("a.rs", a)]), ["a f"], "{a}");
        }
    }

    #[test]
    fn path_attributes_locate_modules() {
        let lib = "#[path = \"c/x.rs\"] mod b; fn f() { b::g() }";
        assert_eq!(imports(&[("lib.rs", lib), ("c/x.rs", "pub fn g() {}")]), ["lib c/x"]);
    }

    #[test]
    fn macro_items_belong_to_the_calling_file() {
        let b = ("b.rs", "macro_rules! make { ($n:ident) => { pub struct $n; } } make!(B);");
        let a = ("a.rs", "use crate::b::B; use crate::c::C;");
        let files = [("lib.rs", "mod a; mod b; mod c;"), a, b, ("c.rs", "pub use other::C;")];
        assert_eq!(imports(&files), ["a b"]);
    }
}
