//! The tests in the sources of the workspace.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{
    Attribute, Block, Expr, ExprLit, Item, Lit, LitStr, Meta,
    visit::{self, Visit},
};

/// One test function.
pub(crate) struct Test {
    /// From the root of the workspace, with `/`.
    pub(crate) file: String,
    pub(crate) name: String,
    /// Its doc comment, line by line.
    pub(crate) doc: Vec<String>,
    /// The string literals in its body, and in the constants of its file that it names. They
    /// include the names of rows of tables.
    pub(crate) literals: BTreeSet<String>,
}

/// The files with one of these extensions, in order, without built and hidden files.
pub(crate) fn files(root: &Path, extensions: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with('.') || name == "node_modules" {
                continue;
            }
            if path.is_dir() {
                // cargo puts this file into its target directories.
                if !path.join("CACHEDIR.TAG").exists() {
                    directories.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|found| extensions.iter().any(|wanted| found == *wanted))
            {
                let below = path.strip_prefix(root).expect("below the root");
                found.push(below.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found.sort();
    found
}

/// These tests check names of tests, and show no behaviour of the controllers.
const OWN: &str = "testenv/tests/docs/";

/// The Rust tests that are run, except those of this folder, in the order of their files.
pub(crate) fn tests(root: &Path) -> Result<Vec<Test>, String> {
    let mut tests = Vec::new();
    for file in files(root, &["rs"]) {
        if file.starts_with(OWN) {
            continue;
        }
        let text = fs::read_to_string(root.join(&file)).map_err(|e| format!("{file}: {e}"))?;
        tests.extend(tests_in(&file, &text).map_err(|error| format!("{file}: {error}"))?);
    }
    Ok(tests)
}

fn tests_in(file: &str, text: &str) -> syn::Result<Vec<Test>> {
    let parsed = syn::parse_file(text)?;
    let mut tables = Tables::default();
    tables.visit_file(&parsed);
    let mut found = Found {
        file,
        tables,
        tests: Vec::new(),
    };
    found.visit_file(&parsed);
    Ok(found.tests)
}

/// The literals of each constant of a file, by its name.
#[derive(Default)]
struct Tables(BTreeMap<String, BTreeSet<String>>);

impl<'ast> Visit<'ast> for Tables {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        let mut literals = Literals::default();
        literals.visit_expr(&item.expr);
        self.0.insert(item.ident.to_string(), literals.0);
    }
}

/// The constants that a body names.
struct Named<'a>(&'a Tables, BTreeSet<String>);

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let named = path
            .get_ident()
            .and_then(|name| self.0.0.get(&name.to_string()));
        self.1.extend(named.into_iter().flatten().cloned());
    }
}

struct Found<'a> {
    file: &'a str,
    tables: Tables,
    tests: Vec<Test>,
}

impl Found<'_> {
    fn add(&mut self, name: String, attributes: &[Attribute], literals: BTreeSet<String>) {
        let is = |name: &str| {
            attributes.iter().any(|attribute| {
                let last = attribute.path().segments.last();
                last.is_some_and(|segment| segment.ident == name)
            })
        };
        if is("test") && !is("ignore") {
            self.tests.push(Test {
                file: self.file.to_owned(),
                name,
                doc: attributes.iter().filter_map(doc_line).collect(),
                literals,
            });
        }
    }

    /// Finds the tests in `proptest! { #[test] fn name(x in strategy) { … } }`, which the parser
    /// does not see as functions.
    fn inside_of_macro(&mut self, tokens: TokenStream) {
        let mut attributes = TokenStream::new();
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match (&token, tokens.peek()) {
                (TokenTree::Punct(hash), Some(TokenTree::Group(group)))
                    if hash.as_char() == '#' && group.delimiter() == Delimiter::Bracket =>
                {
                    attributes.extend([token, tokens.next().expect("was peeked at")]);
                }
                (TokenTree::Ident(word), Some(TokenTree::Ident(name))) if word == "fn" => {
                    let name = name.to_string();
                    let braces = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
                    let mut literals = Literals::default();
                    if let Some(TokenTree::Group(body)) = tokens.find(braces) {
                        literals.inside_of_macro(body.stream());
                    }
                    let attributes = std::mem::take(&mut attributes);
                    let parse = Attribute::parse_outer;
                    if let Ok(read) = syn::parse::Parser::parse2(parse, attributes) {
                        self.add(name, &read, literals.0);
                    }
                }
                (TokenTree::Group(_) | TokenTree::Punct(_), _) => attributes = TokenStream::new(),
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Found<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let mut literals = Literals::of(&function.block);
        let mut named = Named(&self.tables, BTreeSet::new());
        named.visit_block(&function.block);
        literals.append(&mut named.1);
        self.add(function.sig.ident.to_string(), &function.attrs, literals);
    }

    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Macro(item) => self.inside_of_macro(item.mac.tokens.clone()),
            other => visit::visit_item(self, other),
        }
    }
}

#[derive(Default)]
struct Literals(BTreeSet<String>);

impl Literals {
    fn of(block: &Block) -> BTreeSet<String> {
        let mut literals = Self::default();
        literals.visit_block(block);
        literals.0
    }

    fn inside_of_macro(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.inside_of_macro(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Lit::Str(text) = Lit::new(literal) {
                        self.0.insert(text.value());
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Literals {
    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.0.insert(text.value());
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        self.inside_of_macro(invoked.tokens.clone());
    }
}

pub(crate) fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) if pair.path.is_ident("doc") => Some(text.value().trim().to_owned()),
        _ => None,
    }
}

#[test]
fn tests_are_found_wherever_they_stand() {
    let text = r#"
        const ROWS: [&str; 1] = ["a row"];
        const OTHERS: [&str; 1] = ["another row"];
        #[test]
        fn plain() { for row in ROWS {} assert_eq!(f("one", [g("two")]), r"three"); let _ = "four"; }
        fn no_test() {}
        mod tests {
            /// Shows something.
            ///  And more.
            #[tokio::test(start_paused = true)]
            async fn deep() {}
            #[test]
            #[ignore = "is started by another"]
            fn not_run() {}
        }
        proptest! {
            #![proptest_config(Config::default())]
            /// In a macro.
            #[test]
            fn any(x in "strategy") { let _ = ("five", vec!["six"]); }
            fn helper() {}
        }
    "#;
    let tests = tests_in("src/a.rs", text).unwrap();
    let found: Vec<_> = tests
        .iter()
        .map(|test| {
            let literals: Vec<_> = test.literals.iter().map(String::as_str).collect();
            (test.name.as_str(), test.doc.join("|"), literals.join(" "))
        })
        .collect();
    let row = |name, doc: &str, literals: &str| (name, doc.to_owned(), literals.to_owned());
    assert_eq!(
        found,
        [
            row("plain", "", "a row four one three two"),
            row("deep", "Shows something.|And more.", ""),
            row("any", "In a macro.", "five six"),
        ]
    );
    assert!(tests_in("src/a.rs", "fn {").is_err());
}
