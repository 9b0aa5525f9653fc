//! The output of `.ci/measure`: the size and the shape of the `ccm`. Only code that is in a
//! shipped binary counts, without blank lines and comments.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::layers;
use crate::layers::source::Code;

/// The crate that is measured.
const CRATE: &str = "ccm";
/// Flags and configuration: their structs have a field for each flag.
const FLAGS: &str = "args";
/// A function with more lines is long, or very long.
const LONG: [usize; 2] = [60, 100];
/// The number of the largest items in the output.
const SHOWN: usize = 5;
const LINTS: [&str; 2] = ["too_many_lines", "struct_excessive_bools"];

/// One file of code.
struct File {
    /// Below `src`.
    name: String,
    text: String,
    /// The lines with code.
    lines: BTreeSet<usize>,
}

impl File {
    fn code(&self) -> impl Iterator<Item = &str> {
        let lines = (1..).zip(self.text.lines());
        lines.filter_map(|(number, line)| self.lines.contains(&number).then_some(line))
    }
}

/// The report about this tree.
pub(crate) fn report(root: &Path) -> Result<String, String> {
    let mut text = String::new();
    let mut say = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    let mut all = 0;
    for (name, main) in crates(root)? {
        let lines: usize = files(&main)?.iter().map(|file| file.lines.len()).sum();
        say(format!("lines of code of {name}: {lines}"));
        all += lines;
    }
    say(format!("lines of code in all: {all}"));
    let lib = root.join(CRATE).join("src/lib.rs");
    let sources = layers::sources_beside(&lib)?;
    let code = Code::read(&sources).map_err(|wrong| wrong.join("\n"))?;
    let circle = layers::rooms_in_a_circle(&code);
    say(format!(
        "rooms in a circle: {}{}",
        circle.len(),
        named(&circle)
    ));
    let files = files(&lib)?;
    let mut shape = Shape::default();
    for file in &files {
        shape.read(file)?;
    }
    for most in LONG {
        let longer = shape.functions.iter().filter(|(lines, _)| *lines > most);
        say(format!("functions over {most} lines: {}", longer.count()));
    }
    say(format!("longest functions: {}", largest(shape.functions)));
    say(format!(
        "structs with most fields outside of {FLAGS}: {}",
        largest(shape.structs)
    ));
    let has = |words: &str| {
        let lines = files.iter().flat_map(File::code);
        lines.filter(|line| line.contains(words)).count()
    };
    let manifest = read(&root.join("Cargo.toml"))?;
    for lint in LINTS {
        let count = has(&format!("clippy::{lint}"));
        let mut lines = manifest.lines();
        let all = lines.any(|line| line.starts_with(lint) && line.contains("allow"));
        let all = if all {
            ", and Cargo.toml allows it everywhere"
        } else {
            ""
        };
        say(format!("allow or expect of {lint}: {count}{all}"));
    }
    let defaults = has("retry_after.unwrap_or");
    say(format!(
        "defaults of a retry_after that is missing: {defaults}"
    ));
    let map = read(&root.join("docs/architecture.md"))?;
    for object in ["Node", "Service"] {
        say(format!(
            "files on the way of a {object}: {}",
            files_on_the_way(&map, object)
        ));
    }
    Ok(text)
}

fn named(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" ({})", names.join(", "))
    }
}

fn largest(mut all: Vec<(usize, String)>) -> String {
    all.sort_by(|a, b| b.cmp(a));
    let shown = all.iter().take(SHOWN);
    let shown = shown.map(|(count, name)| format!("{count} {name}"));
    shown.collect::<Vec<_>>().join(", ")
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The crate and the crates of the workspace that it links, each with the file of its root module.
fn crates(root: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let workspace = read(&root.join("Cargo.toml"))?;
    let own = read(&root.join(CRATE).join("Cargo.toml"))?;
    let own = section(&own, "dependencies");
    let mut found = vec![(CRATE.to_owned(), root.join(CRATE).join("src/lib.rs"))];
    for line in section(&workspace, "workspace.dependencies") {
        let Some((name, rest)) = line.split_once(" = ") else {
            continue;
        };
        let Some((_, path)) = rest.split_once("path = \"") else {
            continue;
        };
        let path = root.join(path.split('"').next().unwrap_or_default());
        let is_linked = own.iter().any(|own| {
            let rest = own.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '.']))
        });
        if is_linked {
            let manifest = read(&path.join("Cargo.toml"))?;
            let lib = section(&manifest, "lib");
            let lib = lib.iter().find_map(|line| line.strip_prefix("path = \""));
            let lib = lib.map_or("src/lib.rs", |lib| lib.trim_end_matches('"'));
            found.push((name.to_owned(), path.join(lib)));
        }
    }
    Ok(found)
}

/// The lines of one table of a manifest.
fn section<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let head = format!("[{name}]");
    let lines = manifest.lines().skip_while(|line| *line != head).skip(1);
    lines.take_while(|line| !line.starts_with('[')).collect()
}

/// The files of a crate whose code is in a shipped binary, and the crate's `main.rs` if it has one.
fn files(lib: &Path) -> Result<Vec<File>, String> {
    let mut sources = layers::sources_beside(lib)?;
    let code = Code::read(&sources).map_err(|wrong| wrong.join("\n"))?;
    let main = lib.with_file_name("main.rs");
    let compiled = code.files().filter(|file| is_shipped(file, &sources));
    let mut names: Vec<String> = compiled.map(str::to_owned).collect();
    if main.exists() {
        sources.insert("main.rs".to_owned(), read(&main)?);
        names.push("main.rs".to_owned());
    }
    let file = |name: String| {
        let text = sources.remove(&name).unwrap_or_default();
        let tokens = text.parse::<TokenStream>();
        let tokens = tokens.map_err(|error| format!("{name}: {error}"))?;
        let mut lines = BTreeSet::new();
        code_lines(tokens, &mut lines);
        Ok(File { name, text, lines })
    };
    names.into_iter().map(file).collect()
}

/// Whether a file's code is in a shipped binary: on each level, a `mod` item without a condition
/// that excludes it leads to the file.
fn is_shipped(file: &str, sources: &BTreeMap<String, String>) -> bool {
    if file == "lib.rs" {
        return true;
    }
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let (folder, module) = path.rsplit_once('/').unwrap_or(("", path));
    let parents = match folder {
        "" => vec!["lib.rs".to_owned()],
        _ => vec![format!("{folder}.rs"), format!("{folder}/mod.rs")],
    };
    let Some(parent) = parents.iter().find(|it| sources.contains_key(*it)) else {
        return true;
    };
    let items = syn::parse_file(&sources[parent]).map_or_else(|_| Vec::new(), |it| it.items);
    let declares = |item: &syn::Item| matches!(item, syn::Item::Mod(it) if it.ident == module && !is_left_out(&it.attrs));
    items.iter().any(declares) && is_shipped(parent, sources)
}

fn is_left_out(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            leaves_out(&list.tokens.to_string().replace(' ', ""))
        }
        _ => false,
    })
}

/// Whether a `cfg` keeps an item out of a shipped binary. `condition`: without spaces.
fn leaves_out(condition: &str) -> bool {
    let conditions = [
        "test",
        "fuzzing",
        "any(test,fuzzing)",
        "feature=\"simulation\"",
    ];
    conditions.contains(&condition) || condition.starts_with("all(test,")
}

/// Adds the lines of code, without comments and without code that is in no shipped binary.
fn code_lines(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if let Some((after, words)) = attribute(&tokens, at) {
            if words.starts_with("doc=") {
                at = after;
                continue;
            }
            let condition = words.strip_prefix("cfg(");
            let condition = condition.and_then(|rest| rest.strip_suffix(')'));
            if condition.is_some_and(leaves_out) {
                at = end_of_item(&tokens, after);
                continue;
            }
        }
        match token {
            TokenTree::Group(group) => {
                lines.insert(group.span_open().start().line);
                code_lines(group.stream(), lines);
                lines.insert(group.span_close().end().line);
            }
            other => lines.extend(other.span().start().line..=other.span().end().line),
        }
        at += 1;
    }
}

/// The attribute that begins here: its end, and its text without spaces.
fn attribute(tokens: &[TokenTree], at: usize) -> Option<(usize, String)> {
    let is = |at: usize, char: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == char);
    let inside = at + 1 + usize::from(is(at + 1, '!'));
    match tokens.get(inside) {
        Some(TokenTree::Group(group)) if is(at, '#') && group.delimiter() == Delimiter::Bracket => {
            Some((inside + 1, group.stream().to_string().replace(' ', "")))
        }
        _ => None,
    }
}

/// The end of the item, statement or field that begins here.
fn end_of_item(tokens: &[TokenTree], mut at: usize) -> usize {
    while let Some((after, _)) = attribute(tokens, at) {
        at = after;
    }
    let mut ends_with_braces = None;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            // A field or a variant.
            TokenTree::Punct(punct) if punct.as_char() == ',' && ends_with_braces.is_none() => {
                break;
            }
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Brace && ends_with_braces == Some(true) =>
            {
                break;
            }
            TokenTree::Ident(word) if ends_with_braces.is_none() => {
                ends_with_braces = match word.to_string().as_str() {
                    "fn" | "mod" | "impl" | "struct" | "enum" | "trait" | "macro_rules" => {
                        Some(true)
                    }
                    "use" | "let" | "const" | "static" | "type" => Some(false),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    at
}

/// Functions and structs with their size.
#[derive(Default)]
struct Shape {
    functions: Vec<(usize, String)>,
    structs: Vec<(usize, String)>,
}

impl Shape {
    fn read(&mut self, file: &File) -> Result<(), String> {
        let parsed = syn::parse_file(&file.text).map_err(|e| format!("{}: {e}", file.name))?;
        let mut reader = Sizes { file, shape: self };
        reader.visit_file(&parsed);
        Ok(())
    }
}

struct Sizes<'a> {
    file: &'a File,
    shape: &'a mut Shape,
}

impl Sizes<'_> {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let last = block.brace_token.span.close().end().line;
        let lines = self.file.lines.range(first..=last).count();
        let name = format!("{}::{}", self.file.name, signature.ident);
        self.shape.functions.push((lines, name));
    }
}

impl<'ast> Visit<'ast> for Sizes<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_left_out(layers::source::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_left_out(&function.attrs) {
            self.function(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let is_flags = self.file.name.split(['/', '.']).next() == Some(FLAGS);
        if !is_flags {
            let name = format!("{}::{}", self.file.name, item.ident);
            self.shape.structs.push((item.fields.len(), name));
        }
        visit::visit_item_struct(self, item);
    }
}

/// The number of files that the section about an object's life names.
fn files_on_the_way(map: &str, object: &str) -> usize {
    let head = format!("## Life of a {object}");
    let section = map
        .split("\n## ")
        .find(|section| head.ends_with(section.lines().next().unwrap_or_default()));
    let words = section.unwrap_or_default().split('`').skip(1).step_by(2);
    let is_code = |word: &&str| Path::new(word).extension().is_some_and(|it| it == "rs");
    let files: BTreeSet<&str> = words.filter(is_code).collect();
    files.len()
}

#[test]
fn lines_of_code_are_those_that_the_compiler_reads_without_tests() {
    let text = "//! Head.\n\nuse a::{\n    b,\n};\n\n/// Doc.\n#[derive(Debug)]\nstruct S {\n    // Why.\n    a: u8,\n    #[cfg(test)]\n    b: u8,\n}\n\n#[cfg(test)]\nuse a::{c};\n#[cfg(test)]\nfn t() {\n    f();\n}\n\nfn f() {\n    let x = \"a\nb\";\n}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
    let mut lines = BTreeSet::new();
    code_lines(text.parse().unwrap(), &mut lines);
    let lines: Vec<usize> = lines.into_iter().collect();
    assert_eq!(lines, [3, 4, 5, 8, 9, 11, 14, 23, 24, 25, 26]);
}

#[test]
fn lines_of_code_leave_out_what_no_shipped_binary_compiles() {
    let text = "#[cfg(feature = \"simulation\")]\nmod on {\n    fn f() {}\n}\n#[cfg(not(feature = \"simulation\"))]\nfn g() {}\n#[cfg(fuzzing)]\nfn h() {}\n";
    let mut lines = BTreeSet::new();
    code_lines(text.parse().unwrap(), &mut lines);
    assert_eq!(lines.into_iter().collect::<Vec<_>>(), [5, 6]);

    let lib = "#[cfg(feature = \"simulation\")]\npub mod both;\n#[cfg(not(feature = \"simulation\"))]\nmod both;\n#[cfg(fuzzing)]\nmod fuzz;\nmod room;\n";
    let room = "#[cfg(feature = \"simulation\")]\nmod simulated;\nmod plan;\n";
    let sources = [
        ("lib.rs", lib),
        ("both.rs", ""),
        ("fuzz.rs", "mod seeds;"),
        ("fuzz/seeds.rs", ""),
        ("room.rs", room),
        ("room/simulated.rs", ""),
        ("room/plan.rs", ""),
    ];
    let sources = sources.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let sources = BTreeMap::from(sources);
    let mut shipped: Vec<&str> = sources.keys().map(String::as_str).collect();
    shipped.retain(|file| is_shipped(file, &sources));
    assert_eq!(shipped, ["both.rs", "lib.rs", "room.rs", "room/plan.rs"]);
}

#[test]
fn sizes_are_those_of_code() {
    let text = "struct A { a: u8, b: u8 }\nfn f() {\n    // Why.\n\n    g();\n}\n#[cfg(test)]\nfn t() {}\n";
    let mut lines = BTreeSet::new();
    code_lines(text.parse().unwrap(), &mut lines);
    let file = File {
        name: "a.rs".to_owned(),
        text: text.to_owned(),
        lines,
    };
    let mut shape = Shape::default();
    shape.read(&file).unwrap();
    assert_eq!(shape.functions, [(3, "a.rs::f".to_owned())]);
    assert_eq!(shape.structs, [(2, "a.rs::A".to_owned())]);
}

#[test]
fn the_files_on_a_way_are_counted_once() {
    let map = "# A\n\n## Life of a Node\n\n`a.rs`, `b/c.rs` and `a.rs`; `no`.\n\n## Life of a Service\n\n`d.rs`\n";
    assert_eq!(files_on_the_way(map, "Node"), 2);
    assert_eq!(files_on_the_way(map, "Service"), 1);
}

/// Measures this tree, or the one that `MEASURE` names.
#[test]
#[ignore = ".ci/measure starts it"]
fn measure() {
    let root = std::env::var_os("MEASURE").map_or_else(|| crate::root().to_owned(), PathBuf::from);
    match report(&root) {
        Ok(text) => print!("{text}"),
        Err(error) => panic!("{error}"),
    }
}
