//! Finds the decision modules, and what they must not do.
//!
//! A module decides if its name is `plan`, if the first line of its doc comment ends with "Pure.",
//! or if it is in such a module. Its arguments are the time and the read data, and it returns the
//! decision. So it has no `async`, clock, lock, log, task, random number, file, socket or client.

use super::source::{Code, Module};

/// The last word of the first line of the doc comment.
const MARKER: &str = "Pure.";

/// Forbidden paths, from the root of their crate, with the reason. Each forbids all paths that
/// begin with it. One that begins with `..` forbids all paths that contain the rest.
const PATHS: [(&str, &str); 36] = [
    ("..::Instant::now", "a clock"),
    ("..::SystemTime", "a clock"),
    ("..::Timestamp::now", "a clock"),
    ("..::Utc::now", "a clock"),
    ("..::Local::now", "a clock"),
    ("..::Zoned::now", "a clock"),
    ("crate::core::WallClock", "a clock"),
    ("std::sync::Mutex", "a lock"),
    ("std::sync::MutexGuard", "a lock"),
    ("std::sync::RwLock", "a lock"),
    ("std::sync::RwLockReadGuard", "a lock"),
    ("std::sync::RwLockWriteGuard", "a lock"),
    ("std::sync::Condvar", "a lock"),
    ("std::sync::OnceLock", "a lock"),
    ("std::sync::atomic", "shared state"),
    ("std::sync::mpsc", "a channel"),
    ("tracing", "a log"),
    ("println", "a log"),
    ("eprintln", "a log"),
    ("dbg", "a log"),
    ("tokio", "a task, a timer or a lock of tokio"),
    ("futures", "an asynchronous call"),
    ("rand::rng", "a random number"),
    ("rand::random", "a random number"),
    ("std::fs", "a file"),
    ("std::env", "the environment"),
    ("std::process", "a process"),
    ("std::thread", "a thread"),
    ("std::net::TcpStream", "a socket"),
    ("kube::Client", "a client"),
    ("kube::Api", "a client"),
    ("tonic::transport", "a client"),
    ("crate::kube_client::KubeClients", "a client"),
    ("crate::provider::Session", "a client of the provider"),
    ("crate::writes::Writes", "a client"),
    ("crate::writes::EventSink", "a client"),
];
/// A point in time, which is an argument.
const ALLOWED: [&str; 1] = ["tokio::time::Instant"];
/// Forbidden keywords and methods.
const WORDS: [(&str, &str); 4] = [
    ("async", "an asynchronous call"),
    ("await", "an asynchronous call"),
    ("elapsed", "a clock"),
    ("lock", "a lock"),
];

/// Whether this module decides.
pub(super) fn decides(code: &Code, module: &[String]) -> bool {
    (1..=module.len()).any(|depth| {
        let around = &module[..depth];
        let doc = code.doc(around).first();
        around.last().is_some_and(|name| name == "plan")
            || doc.is_some_and(|line| line.ends_with(MARKER))
    })
}

/// Each place at which a decision module breaks the rule.
pub(super) fn wrong(code: &Code) -> Vec<String> {
    let named = code.names().iter().filter_map(|named| {
        let what = of_path(&named.path.join("::"))?;
        let path = named.path.join("::");
        Some((&named.module, &named.place, path, what))
    });
    let marked = code.marks().iter().filter_map(|mark| {
        let (_, what) = WORDS.iter().find(|(word, _)| *word == mark.word)?;
        Some((&mark.module, &mark.place, mark.word.clone(), *what))
    });
    let mut wrong: Vec<String> = named
        .chain(marked)
        .filter(|(module, ..)| decides(code, module))
        .map(|(module, place, word, what)| say(module, place, &word, what))
        .collect();
    wrong.sort();
    wrong.dedup();
    wrong
}

fn say(module: &Module, place: &str, word: &str, what: &str) -> String {
    let module = module.join("::");
    format!("{place}: {module} decides, and {word} is {what}: its caller must do that")
}

fn of_path(path: &str) -> Option<&'static str> {
    let found = PATHS
        .iter()
        .find(|(pattern, _)| match pattern.strip_prefix("..") {
            Some(end) => format!("::{path}::").contains(&format!("{end}::")),
            None => begins(path, pattern),
        });
    let (pattern, what) = found?;
    let allowed = ALLOWED.iter().any(|allowed| begins(path, allowed));
    (pattern.starts_with("..") || !allowed).then_some(*what)
}

/// Whether the path begins with these whole words.
fn begins(path: &str, words: &str) -> bool {
    path.strip_prefix(words)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}
