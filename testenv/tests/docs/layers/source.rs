//! A crate's modules and every path in them, resolved much as the compiler does.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Item, Meta, UseTree};

/// The names of a module, from the root.
pub(crate) type Module = Vec<String>;

/// All code except for the code that only tests, or only tests and `make fuzz`, compile.
#[derive(Default)]
pub(crate) struct Code {
    modules: BTreeMap<Module, Scope>,
    names: Vec<Named>,
    marks: Vec<Mark>,
    root_items: Vec<usize>,
    files: BTreeSet<String>,
}

#[derive(Default)]
struct Scope {
    /// The doc comment at the head of the module.
    doc: Vec<String>,
    /// The path from which each name was imported, as the source has it.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// The items that are defined here. A glob import does not replace them.
    items: BTreeSet<String>,
}

/// A path somewhere in the code.
pub(crate) struct Named {
    /// Where it is.
    pub(crate) module: Module,
    /// File and line.
    pub(crate) place: String,
    /// From the root of its crate: `crate`, or another crate's name.
    pub(crate) path: Vec<String>,
}

/// A keyword or a method call, which is no path.
pub(crate) struct Mark {
    pub(crate) module: Module,
    pub(crate) place: String,
    pub(crate) word: String,
}

impl Code {
    /// Follows the `mod` items from `lib.rs`. `sources`: by path below `src`.
    pub(crate) fn read(sources: &BTreeMap<String, String>) -> Result<Self, Vec<String>> {
        let mut code = Self::default();
        let mut wrong = Vec::new();
        let mut open = vec![(Module::new(), "lib.rs".to_owned())];
        while let Some((module, file)) = open.pop() {
            // A module may be declared twice, for two sets of features.
            if !code.files.insert(file.clone()) {
                continue;
            }
            let Some(text) = sources.get(&file) else {
                wrong.push(format!(
                    "ccm/src/{file}: a module is declared, and there is no such file"
                ));
                continue;
            };
            let parsed = match syn::parse_file(text) {
                Ok(parsed) => parsed,
                Err(error) => {
                    wrong.push(format!("ccm/src/{file}: {error}"));
                    continue;
                }
            };
            if module.is_empty() {
                code.root_items = root_items(&parsed.items);
            }
            let mut reader = Reader {
                code: &mut code,
                file: &file,
                module: module.clone(),
                files: Vec::new(),
            };
            reader.scope().doc = doc(&parsed.attrs);
            for item in &parsed.items {
                reader.visit_item(item);
            }
            for child in reader.files {
                let path = child.join("/");
                let folder = format!("{path}/mod.rs");
                let plain = format!("{path}.rs");
                let file = if sources.contains_key(&folder) {
                    folder
                } else {
                    plain
                };
                open.push((child, file));
            }
        }
        if wrong.is_empty() {
            code.resolve();
            Ok(code)
        } else {
            Err(wrong)
        }
    }

    pub(crate) fn modules(&self) -> impl Iterator<Item = &Module> {
        self.modules.keys()
    }

    /// By path below `src`.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    pub(crate) fn names(&self) -> &[Named] {
        &self.names
    }

    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The lines of `lib.rs` that do more than to declare a module.
    pub(crate) fn root_items(&self) -> &[usize] {
        &self.root_items
    }

    /// The doc comment at the head of a module.
    pub(crate) fn doc(&self, module: &[String]) -> &[String] {
        self.modules.get(module).map_or(&[], |scope| &scope.doc)
    }

    fn resolve(&mut self) {
        let names = std::mem::take(&mut self.names);
        self.names = names
            .into_iter()
            .map(|named| Named {
                path: self.absolute(&named.module, &named.path, 0),
                ..named
            })
            .collect();
    }

    /// From the root of its crate.
    fn absolute(&self, module: &[String], path: &[String], depth: usize) -> Vec<String> {
        /// The longest chain of imports that this method follows.
        const DEEPEST: usize = 16;
        let Some((first, rest)) = path.split_first() else {
            return Vec::new();
        };
        let within = |module: &[String], rest: &[String]| {
            let root = ["crate".to_owned()];
            [root.as_slice(), module, rest].concat()
        };
        match first.as_str() {
            "crate" => return path.to_vec(),
            "self" if rest.first().is_none_or(|next| next != "super") => {
                return within(module, rest);
            }
            "self" => return self.absolute(module, rest, depth),
            "super" => {
                let parent = module.split_last().map_or(&[][..], |(_, parent)| parent);
                // `super::super` begins again in the parent.
                return if rest.first().is_some_and(|next| next == "super") {
                    self.absolute(parent, rest, depth)
                } else {
                    within(parent, rest)
                };
            }
            _ => {}
        }
        let child = [module, std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&child) {
            return within(&child, rest);
        }
        let imported = self
            .modules
            .get(module)
            .and_then(|it| it.imports.get(first));
        match imported {
            Some(from) if depth < DEEPEST && from.first() != Some(first) => {
                let mut path = self.absolute(module, from, depth + 1);
                path.extend_from_slice(rest);
                path
            }
            _ => path.to_vec(),
        }
    }

    /// The modules that a path from the root leads through: each module in the path and, where a
    /// name in it is a re-export, those in the re-exported path.
    pub(crate) fn modules_through(&self, path: &[String]) -> BTreeSet<Module> {
        let mut through = BTreeSet::new();
        let mut open = vec![path.to_vec()];
        let mut seen = BTreeSet::new();
        while let Some(path) = open.pop() {
            if path.first().is_none_or(|first| first != "crate") || !seen.insert(path.clone()) {
                continue;
            }
            let mut module = Module::new();
            let mut names = path[1..].iter();
            while let Some(name) = names.next() {
                let child = [module.as_slice(), std::slice::from_ref(name)].concat();
                if self.modules.contains_key(&child) {
                    module = child;
                    through.insert(module.clone());
                    continue;
                }
                let Some(scope) = self.modules.get(&module) else {
                    break;
                };
                let rest: Vec<String> = names.cloned().collect();
                if let Some(from) = scope.imports.get(name) {
                    open.push([self.absolute(&module, from, 0), rest].concat());
                } else if !scope.items.contains(name) {
                    for from in &scope.globs {
                        let from = self.absolute(&module, from, 0);
                        open.push([from, vec![name.clone()], rest.clone()].concat());
                    }
                }
                break;
            }
        }
        through
    }
}

/// Whether the item is compiled only for tests, or only for tests and `make fuzz`.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else {
            return false;
        };
        let words = list.tokens.to_string().replace(' ', "");
        list.path.is_ident("cfg")
            && (words == "test" || words == "any(test,fuzzing)" || words.starts_with("all(test,"))
    })
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        _ => None,
    }
}

fn doc(attributes: &[Attribute]) -> Vec<String> {
    attributes
        .iter()
        .filter_map(crate::sources::doc_line)
        .collect()
}

/// The lines of items that are no modules.
fn root_items(items: &[Item]) -> Vec<usize> {
    let others = items.iter().filter(|item| !is_for_tests(attributes(item)));
    let line = |item: &Item| match item {
        Item::Mod(_) => None,
        Item::Use(item) => Some(item.use_token.span.start().line),
        Item::Const(item) => Some(item.ident.span().start().line),
        Item::Fn(item) => Some(item.sig.ident.span().start().line),
        Item::Struct(item) => Some(item.ident.span().start().line),
        _ => Some(1),
    };
    others.filter_map(line).collect()
}

struct Reader<'a> {
    code: &'a mut Code,
    file: &'a str,
    module: Module,
    /// Modules that are files of their own.
    files: Vec<Module>,
}

impl Reader<'_> {
    fn scope(&mut self) -> &mut Scope {
        self.code.modules.entry(self.module.clone()).or_default()
    }

    fn place(&self, line: usize) -> String {
        format!("ccm/src/{}:{line}", self.file)
    }

    fn named(&mut self, path: Vec<String>, line: usize) {
        self.code.names.push(Named {
            module: self.module.clone(),
            place: self.place(line),
            path,
        });
    }

    fn mark(&mut self, word: &Ident) {
        self.code.marks.push(Mark {
            module: self.module.clone(),
            place: self.place(word.span().start().line),
            word: word.to_string(),
        });
    }

    fn import(&mut self, before: &[String], tree: &UseTree) {
        let longer = |ident: &Ident| [before, &[ident.to_string()]].concat();
        // `use a::{self}` imports `a`.
        let whole = |ident: &Ident| {
            if ident == "self" && !before.is_empty() {
                before.to_vec()
            } else {
                longer(ident)
            }
        };
        match tree {
            UseTree::Path(path) => self.import(&longer(&path.ident), &path.tree),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(before, tree);
                }
            }
            UseTree::Glob(glob) => {
                let line = glob.star_token.spans[0].start().line;
                self.scope().globs.push(before.to_vec());
                self.named(before.to_vec(), line);
            }
            UseTree::Name(name) => {
                let path = whole(&name.ident);
                if let Some(last) = path.last().cloned() {
                    self.scope().imports.insert(last, path.clone());
                }
                self.named(path, name.ident.span().start().line);
            }
            UseTree::Rename(name) => {
                let path = whole(&name.ident);
                let scope = self.scope();
                scope.imports.insert(name.rename.to_string(), path.clone());
                self.named(path, name.ident.span().start().line);
            }
        }
    }

    /// In a macro, words with `::` between them are a path. Any other word may be a method or a
    /// keyword.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<Ident> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.path_of_words(&std::mem::take(&mut path));
                    }
                    colons = 0;
                    path.push(word);
                }
                other => {
                    self.path_of_words(&std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.path_of_words(&path);
    }

    fn path_of_words(&mut self, words: &[Ident]) {
        match words {
            [] => {}
            [word] => self.mark(word),
            [first, ..] => {
                let line = first.span().start().line;
                self.named(words.iter().map(Ident::to_string).collect(), line);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        let Item::Mod(inner) = item else {
            if let Some(name) = name(item) {
                self.scope().items.insert(name.to_string());
            }
            visit::visit_item(self, item);
            return;
        };
        self.module.push(inner.ident.to_string());
        match &inner.content {
            None => self.files.push(self.module.clone()),
            Some((_, items)) => {
                self.scope().doc = doc(&inner.attrs);
                for item in items {
                    self.visit_item(item);
                }
            }
        }
        self.module.pop();
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if let syn::Stmt::Local(local) = statement
            && is_for_tests(&local.attrs)
        {
            return;
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if let Some(first) = path.segments.first() {
            self.named(words, first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        self.visit_path(&invoked.path);
        self.tokens(invoked.tokens.clone());
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if let Some(word) = &signature.asyncness {
            self.mark(&Ident::new("async", word.span));
        }
        visit::visit_signature(self, signature);
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::Async(block) => self.mark(&Ident::new("async", block.async_token.span)),
            Expr::Await(awaited) => self.mark(&Ident::new("await", awaited.await_token.span)),
            Expr::Closure(closure) => {
                if let Some(word) = &closure.asyncness {
                    self.mark(&Ident::new("async", word.span));
                }
            }
            Expr::MethodCall(call) => self.mark(&call.method),
            _ => {}
        }
        visit::visit_expr(self, expression);
    }
}
