//! The messages of a test's assertions, and of the assertions of the helpers that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, path::Path};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Expr, Lit};

/// Helpers that wait for a condition. If it does not hold in time, they panic with their first
/// argument.
const WAITS: [&str; 5] = [
    "comes",
    "comes_within",
    "eventually",
    "until",
    "until_at_most",
];

/// The functions of a file, by name.
type Functions = BTreeMap<String, Function>;

#[derive(Default)]
struct Function {
    messages: BTreeSet<String>,
    /// All names in its body. Some are those of other functions.
    names: BTreeSet<String>,
}

/// The functions of each file that has faults, and of the modules around them.
pub(crate) struct Claims(BTreeMap<String, Functions>);

impl Claims {
    pub(crate) fn read(root: &Path, files: &BTreeSet<&str>) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for file in files.iter().flat_map(|file| around(file)) {
            let Ok(text) = fs::read_to_string(root.join(&file)) else {
                continue;
            };
            let read = functions_in(&text).map_err(|error| format!("{file}: {error}"))?;
            all.insert(file, read);
        }
        Ok(Self(all))
    }

    /// The claims of one file with these tests, each with its only message.
    #[cfg(test)]
    pub(crate) fn said(file: &str, tests: &[(&str, &str)]) -> Self {
        let functions = tests.iter().map(|(test, message)| {
            let function = Function {
                messages: [(*message).to_owned()].into(),
                names: BTreeSet::new(),
            };
            ((*test).to_owned(), function)
        });
        Self(BTreeMap::from([(file.to_owned(), functions.collect())]))
    }

    /// The messages of this test's assertions.
    pub(crate) fn of(&self, file: &str, test: &str) -> BTreeSet<String> {
        let mut claims = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut open = vec![(file.to_owned(), test.to_owned())];
        while let Some((file, name)) = open.pop() {
            for file in around(&file) {
                let found = self.0.get(&file).and_then(|them| them.get(&name));
                let Some(function) = found else { continue };
                if seen.insert((file.clone(), name.clone())) {
                    claims.extend(function.messages.iter().cloned());
                    let names = function.names.iter();
                    open.extend(names.map(|name| (file.clone(), name.clone())));
                }
                break;
            }
        }
        claims
    }
}

/// The file, and the files of the modules around it.
fn around(file: &str) -> Vec<String> {
    let mut all = vec![file.to_owned()];
    let mut path = Path::new(file);
    while let Some(parent) = path
        .parent()
        .filter(|parent| parent.components().count() > 1)
    {
        all.push(parent.with_extension("rs").to_string_lossy().into_owned());
        path = parent;
    }
    all
}

/// The text of a message before its first placeholder.
fn words(message: &str) -> String {
    let words = message.split('{').next().unwrap_or_default();
    words.trim_end_matches([' ', ':', ',', '(']).to_owned()
}

fn functions_in(text: &str) -> syn::Result<Functions> {
    let mut reader = Reader::default();
    reader.visit_file(&syn::parse_file(text)?);
    Ok(reader.functions)
}

#[derive(Default)]
struct Reader {
    functions: Functions,
    /// The functions that are being read. A function may contain another function.
    inside: Vec<Function>,
}

impl Reader {
    fn function(&mut self, name: String, read: impl FnOnce(&mut Self)) {
        self.inside.push(Function::default());
        read(self);
        let found = self.inside.pop().unwrap_or_default();
        // Methods of two types may have one name.
        let known = self.functions.entry(name).or_default();
        known.messages.extend(found.messages);
        known.names.extend(found.names);
    }

    fn name(&mut self, name: String) {
        if let Some(function) = self.inside.last_mut() {
            function.names.insert(name);
        }
    }

    fn message(&mut self, text: &str) {
        let words = words(text);
        if let Some(function) = self.inside.last_mut()
            && !words.is_empty()
        {
            function.messages.insert(words);
        }
    }

    fn call(&mut self, name: &str, first: Option<&Expr>) {
        if let (true, Some(Expr::Lit(literal))) = (WAITS.contains(&name), first)
            && let Lit::Str(text) = &literal.lit
        {
            self.message(&text.value());
        }
    }

    fn inside_of_macro(&mut self, tokens: TokenStream, asserts: bool) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.inside_of_macro(group.stream(), false),
                TokenTree::Ident(name) => self.name(name.to_string()),
                TokenTree::Literal(literal) if asserts => {
                    if let Lit::Str(text) = Lit::new(literal) {
                        self.message(&text.value());
                    }
                }
                TokenTree::Literal(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(function.sig.ident.to_string(), |this| {
            this.visit_block(&function.block);
        });
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(function.sig.ident.to_string(), |this| {
            this.visit_block(&function.block);
        });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(last) = path.segments.last() {
            self.name(last.ident.to_string());
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(path) = &*call.func
            && let Some(last) = path.path.segments.last()
        {
            self.call(&last.ident.to_string(), call.args.first());
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = call.method.to_string();
        self.call(&name, call.args.first());
        self.name(name);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        let last = invoked.path.segments.last();
        let asserts = last.is_some_and(|last| last.ident.to_string().starts_with("assert"));
        self.inside_of_macro(invoked.tokens.clone(), asserts);
    }
}

#[test]
fn what_is_asserted_is_found_also_in_helpers_and_the_modules_around() {
    let inner = functions_in(
        r#"
        async fn fault_x() {
            assert!(a.b("no message"), "first: {a:?}");
            world.until("second", |w| helper(w)).await;
            let _ = "a text";
            row(&[third]);
        }
        fn third(w: &World) { assert_eq!(w.x, 1, "third"); }
        fn other() { assert!(false, "of another"); }
    "#,
    );
    let outer = functions_in("fn helper() { assert!(x(), \"fourth, {y}\"); }");
    let claims = Claims(BTreeMap::from([
        ("s/tests/faults.rs".to_owned(), inner.unwrap()),
        ("s/tests.rs".to_owned(), outer.unwrap()),
    ]));
    let found: Vec<String> = claims
        .of("s/tests/faults.rs", "fault_x")
        .into_iter()
        .collect();
    assert_eq!(found, ["first", "fourth", "second", "third"]);
    assert!(claims.of("s/tests/faults.rs", "fault_y").is_empty());
}
