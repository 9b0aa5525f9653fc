//! Each kind of breach, in invented sources.

use std::collections::BTreeMap;

use super::{Layers, table, wrong};

fn layers() -> Layers {
    let rooms = [
        ("leaf", 1),
        ("store", 2),
        ("wire", 2),
        ("controllers/node", 3),
        ("controllers/route", 3),
        ("run", 4),
    ];
    rooms.map(|(room, layer)| (room.to_owned(), layer)).into()
}

/// A small crate. These files replace its own of the same name, or come in addition.
fn sources(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    let usual = [
        (
            "lib.rs",
            "mod leaf; mod store; mod wire; mod controllers; mod run;",
        ),
        ("leaf.rs", "pub(crate) struct Key; pub(crate) struct Other;"),
        ("store.rs", "use crate::leaf::Key;"),
        ("wire.rs", "use crate::leaf::{Key, Other as O};"),
        (
            "controllers.rs",
            "pub(crate) mod node; pub(crate) mod route;",
        ),
        ("controllers/node.rs", "use super::super::store; mod plan;"),
        ("controllers/node/plan.rs", "use crate::leaf::Key;"),
        ("controllers/route.rs", "use crate::wire;"),
        ("run.rs", "use crate::controllers::{node, route};"),
    ];
    let mut all: BTreeMap<String, String> = usual
        .iter()
        .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()))
        .collect();
    for (file, text) in files {
        all.insert((*file).to_owned(), (*text).to_owned());
    }
    all
}

fn found(files: &[(&str, &str)]) -> Vec<String> {
    wrong(&layers(), &sources(files))
}

#[track_caller]
fn breach(files: &[(&str, &str)], expected: &str) {
    let found = found(files);
    assert_eq!(found, [format!("ccm/src/{expected}")], "{files:?}");
}

#[test]
fn imports_of_lower_layers_are_none() {
    assert_eq!(found(&[]), Vec::<String>::new());
}

#[test]
fn each_form_of_a_path_is_resolved() {
    let upward = "leaf (layer 1) imports store (layer 2): upward";
    for (text, line) in [
        ("use crate::store::Store;", 1),
        ("use crate::{store::Store};", 1),
        ("use crate::store as kept;", 1),
        ("use crate::store::*;", 1),
        ("use super::store::Store;", 1),
        ("use self::super::store::Store;", 1),
        ("\npub(crate) use crate::store::Store as Kept;", 2),
        ("\n\nfn f() { crate::store::g(); }", 3),
        ("fn f(x: crate::store::Store) {}", 1),
        (
            "fn f() { tokio::select! { x = super::store::g() => {} } }",
            1,
        ),
        ("mod inner { use super::super::store::Store; }", 1),
        ("fn f() { use crate::store::g; g(); }", 1),
        ("macro_rules! m { () => { crate::store::g() }; }", 1),
        ("#[cfg(feature = \"x\")]\nfn f() { crate::store::g(); }", 2),
    ] {
        let leaf = format!("{text} pub(crate) struct Key; pub(crate) struct Other;");
        let found = found(&[("leaf.rs", leaf.as_str())]);
        let expected = format!("ccm/src/leaf.rs:{line}: {upward}");
        // The store imports the leaf, so the second breach is their circle.
        assert_eq!(found.first(), Some(&expected), "{text}");
        assert_eq!(found.len(), 2, "{found:?}");
    }
}

#[test]
fn an_import_sideways_is_a_breach() {
    breach(
        &[("store.rs", "use crate::wire;")],
        "store.rs:1: store (layer 2) imports wire (layer 2): sideways",
    );
    breach(
        &[("controllers/node.rs", "use super::route::f;")],
        "controllers/node.rs:1: controllers/node (layer 3) imports controllers/route (layer 3): sideways",
    );
}

#[test]
fn a_re_export_is_followed_to_what_it_names() {
    // The folder of the controllers is no room, and each room in it counts.
    let through = [
        (
            "controllers.rs",
            "pub(crate) mod node; pub(crate) mod route; pub(crate) use route::f as g;",
        ),
        ("controllers/node.rs", "\nuse super::g;"),
    ];
    breach(
        &through,
        "controllers/node.rs:2: controllers/node (layer 3) imports controllers/route (layer 3): sideways",
    );
    let glob = [
        (
            "controllers.rs",
            "pub(crate) mod node; pub(crate) mod route; pub(crate) use route::*;",
        ),
        ("controllers/node.rs", "use crate::controllers::h;"),
    ];
    breach(
        &glob,
        "controllers/node.rs:1: controllers/node (layer 3) imports controllers/route (layer 3): sideways",
    );
    // An alias counts as the item that it renames.
    breach(
        &[("store.rs", "use crate as all;\nfn f() { all::wire::g(); }")],
        "store.rs:2: store (layer 2) imports wire (layer 2): sideways",
    );
}

#[test]
fn rooms_in_a_circle_are_named_with_their_imports() {
    let found = found(&[
        ("store.rs", "use crate::wire;"),
        ("wire.rs", "use crate::store;"),
    ]);
    let circle = "rooms in a circle: store imports wire in ccm/src/store.rs:1; wire imports store in ccm/src/wire.rs:1";
    assert_eq!(found.last().map(String::as_str), Some(circle));
}

#[test]
fn what_only_tests_compile_is_exempt() {
    let tests = "#[cfg(test)] mod tests; #[cfg(test)] mod testing { use crate::run; } #[cfg(test)] use crate::run; #[cfg(all(test, unix))] fn f() { crate::run::g(); }";
    let files = [("leaf.rs", tests), ("leaf/tests.rs", "use crate::run;")];
    assert_eq!(found(&files), Vec::<String>::new());
    let both = [("leaf.rs", "#[cfg(not(test))] use crate::run;")];
    assert_eq!(found(&both).len(), 2);
}

#[test]
fn the_table_has_each_room_and_no_other() {
    let found = found(&[
        (
            "lib.rs",
            "mod leaf; mod store; mod wire; mod controllers; mod run; mod more;\nconst X: u8 = 1;",
        ),
        ("more.rs", ""),
    ]);
    assert_eq!(
        found,
        [
            "more: the table of the layers does not have it",
            "lib.rs:2: the root declares rooms, and nothing else"
        ]
    );
    let gone = [("lib.rs", "mod leaf; mod store; mod controllers; mod run;")];
    let found = wrong(&layers(), &sources(&gone));
    assert_eq!(found, ["wire: the table has it, and ccm/src does not"]);
    let lost = [("lib.rs", "mod leaf; mod lost;")];
    let found = wrong(&layers(), &sources(&lost));
    assert_eq!(
        found,
        ["ccm/src/lost.rs: a module is declared, and there is no such file"]
    );
}

#[test]
fn a_decision_that_does_something_is_a_breach() {
    for (text, expected) in [
        ("async fn f() {}", "async is an asynchronous call"),
        ("fn f() { g().await; }", "await is an asynchronous call"),
        ("fn f() { async { }; }", "async is an asynchronous call"),
        ("fn f() { m!(g().await); }", "await is an asynchronous call"),
        (
            "use tokio::time::Instant; fn f() { Instant::now(); }",
            "tokio::time::Instant::now is a clock",
        ),
        (
            "use std::time; fn f() { time::Instant::now(); }",
            "std::time::Instant::now is a clock",
        ),
        (
            "use std::time::Instant as I; fn f() { I::now(); }",
            "std::time::Instant::now is a clock",
        ),
        (
            "use std::time::SystemTime;",
            "std::time::SystemTime is a clock",
        ),
        (
            "fn f() { jiff::Timestamp::now(); }",
            "jiff::Timestamp::now is a clock",
        ),
        (
            "fn f() { chrono::Utc::now(); }",
            "chrono::Utc::now is a clock",
        ),
        ("fn f(at: I) { at.elapsed(); }", "elapsed is a clock"),
        ("use std::sync::{Arc, Mutex};", "std::sync::Mutex is a lock"),
        ("fn f(x: &M) { x.lock(); }", "lock is a lock"),
        ("use tracing::info;", "tracing::info is a log"),
        (
            "fn f() { tracing::warn!(\"x\"); }",
            "tracing::warn is a log",
        ),
        (
            "use tokio::sync::watch;",
            "tokio::sync::watch is a task, a timer or a lock of tokio",
        ),
        ("use kube::Client;", "kube::Client is a client"),
        ("fn f(x: kube::Api<Node>) {}", "kube::Api is a client"),
        (
            "fn f() { std::fs::read(\"x\"); }",
            "std::fs::read is a file",
        ),
    ] {
        breach(
            &[("controllers/node/plan.rs", text)],
            &format!(
                "controllers/node/plan.rs:1: controllers::node::plan decides, and {expected}: its caller must do that"
            ),
        );
    }
}

#[test]
fn what_a_decision_may_use_is_none() {
    let text = "use std::sync::Arc; use tokio::time::Instant; fn f(now: Instant, at: Instant) -> bool { now > at }
        #[cfg(test)] mod tests { #[tokio::test] async fn f() { tokio::time::Instant::now(); } }";
    assert_eq!(
        found(&[("controllers/node/plan.rs", text)]),
        Vec::<String>::new()
    );
}

#[test]
fn decisions_are_known_by_name_place_and_marker() {
    let lock = "use std::sync::Mutex;";
    let below = [
        ("controllers/node/plan.rs", "mod part;"),
        ("controllers/node/plan/part.rs", lock),
    ];
    breach(
        &below,
        "controllers/node/plan/part.rs:1: controllers::node::plan::part decides, and std::sync::Mutex is a lock: its caller must do that",
    );
    let marked = "//! What to do. Pure.\n//!\n//! More.\nuse std::sync::Mutex;";
    breach(
        &[("leaf.rs", marked)],
        "leaf.rs:4: leaf decides, and std::sync::Mutex is a lock: its caller must do that",
    );
    assert_eq!(found(&[("leaf.rs", lock)]), Vec::<String>::new());
}

#[test]
fn the_table_is_read_from_the_document() {
    let text = "# A\n\n### Layers\n\nWords.\n\n| layer | rooms | imports |\n|---|---|---|\n| 2 | `a`, `b/c` | `core` |\n| 1 | `core`: leaves | nothing |\n\n## B\n\n| 3 | `x` | |\n";
    let expected = [("a", 2), ("b/c", 2), ("core", 1)];
    let expected = expected.map(|(room, layer)| (room.to_owned(), layer));
    assert_eq!(table(text), Ok(expected.into()));
    for (text, error) in [
        ("# A", "no section"),
        ("\n### Layers\n\n## B", "no table"),
        (
            "\n### Layers\n\n| 1 | `a` | |\n| 2 | `a` | |",
            "a has two layers",
        ),
    ] {
        let wrong = table(text).unwrap_err();
        assert!(wrong.contains(error), "{wrong}");
    }
}
