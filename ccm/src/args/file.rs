//! The file of `--config`: flags as YAML, with the names of flags as keys. An error about a key
//! names file, line and key.

use std::fmt;
use std::path::Path;

use clap::{Arg, Command};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{Location, Spanned};

use super::command::{says_nothing, takes_a_list, what_is_wrong};

/// The keys that a file cannot have. They name another file, or end the program.
const COMMAND_LINE_ONLY: [&str; 3] = ["config", "help", "version"];
/// Flags whose value is a list of `key=value`. The file may have a mapping instead.
const PAIRS: [&str; 2] = ["feature-gates", "node-deletion-brake"];

/// An error in the file.
#[derive(Debug, PartialEq, Eq)]
pub struct FileFault {
    /// `FILE`, `FILE:LINE` or `FILE:LINE:COLUMN`.
    pub place: String,
    /// The error, and what would be right.
    pub what: String,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// One key of the file.
#[derive(Debug)]
pub(super) struct Entry {
    /// The flag's name without dashes.
    pub(super) key: String,
    /// clap's name of the flag.
    pub(super) id: String,
    /// `FILE:LINE`.
    pub(super) place: String,
    /// The same as arguments of the command line.
    pub(super) arguments: Vec<String>,
}

/// The entries of the file, in its order and with checked values; or all errors in it.
pub(super) fn read(path: &Path, command: &Command) -> Result<Vec<Entry>, Vec<FileFault>> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        vec![FileFault {
            place: file.clone(),
            what: format!("--config cannot be read: {error}"),
        }]
    })?;
    parse(&text, &file, command)
}

pub(super) fn parse(
    text: &str,
    file: &str,
    command: &Command,
) -> Result<Vec<Entry>, Vec<FileFault>> {
    // `.nan` and `.inf` keep their place in the text, see `Tree::Typed`.
    let options = serde_yaml::options! {
        non_finite_float_policy: serde_yaml::options::NonFiniteFloatPolicy::PassThrough
    };
    let document: Option<Tree> =
        serde_yaml::from_str_with_options(text, options).map_err(|error| {
            let place = error.location().map_or_else(
                || file.to_owned(),
                |at| format!("{file}:{}:{}", at.line(), at.column()),
            );
            let what = match error.without_snippet() {
                serde_yaml::Error::DuplicateMappingKey { key: Some(key), .. } => {
                    format!("{key}: given twice; keep one")
                }
                error => error.to_string(),
            };
            vec![FileFault { place, what }]
        })?;
    let fields = match document {
        None | Some(Tree::Null) => Vec::new(),
        Some(Tree::Map(fields)) => fields,
        Some(other) => {
            let what = format!(
                "expected a mapping of flags to values (leader-elect: true), not {}",
                other.kind()
            );
            let place = file.to_owned();
            return Err(vec![FileFault { place, what }]);
        }
    };
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    for (key, value) in fields {
        let line = |location: &Location| format!("{file}:{}", location.line());
        let place = line(&key.referenced);
        match entry(&key.value, &value, text, place.clone(), command) {
            Ok(entry) => entries.push(entry),
            Err(what) => faults.push(FileFault { place, what }),
        }
    }
    if faults.is_empty() {
        Ok(entries)
    } else {
        Err(faults)
    }
}

fn entry(
    key: &str,
    value: &Spanned<Tree>,
    source: &str,
    place: String,
    command: &Command,
) -> Result<Entry, String> {
    let arg = find(key, command)?;
    let written = values(key, value, arg, Some(source))?;
    let read = values(key, value, arg, None)?;
    let mut arguments = Vec::new();
    for (value, read) in written.iter().zip(&read) {
        let argument = |value: &String| format!("--{key}={value}");
        if says_nothing(Some(&argument(value)), command) {
            continue;
        }
        // Each value is parsed alone, so that the error is about this line.
        let parse = |value: &String| {
            let line = ["ccm".to_owned(), argument(value)];
            command.clone().try_get_matches_from(line)
        };
        // YAML writes booleans and numbers in more ways than flags: `yes`, `0x1f`.
        match parse(value) {
            Ok(_) => arguments.push(argument(value)),
            Err(_) if parse(read).is_ok() => arguments.push(argument(read)),
            Err(error) => return Err(format!("{key}: {value:?}: {}", what_is_wrong(&error))),
        }
    }
    Ok(Entry {
        key: key.to_owned(),
        id: arg.get_id().to_string(),
        place,
        arguments,
    })
}

fn find<'a>(key: &str, command: &'a Command) -> Result<&'a Arg, String> {
    if COMMAND_LINE_ONLY.contains(&key) {
        return Err(format!("{key}: this is for the command line only"));
    }
    let known = |arg: &&Arg| arg.get_long() == Some(key);
    command.get_arguments().find(known).ok_or_else(|| {
        let names = command.get_arguments().filter_map(Arg::get_long);
        let names = names.filter(|name| !COMMAND_LINE_ONLY.contains(name));
        let asked = key.trim_start_matches('-').replace('_', "-");
        let nearest = names
            .map(|name| (strsim::jaro_winkler(&asked.to_lowercase(), &name.to_lowercase()), name))
            .max_by(|one, other| one.0.total_cmp(&other.0));
        match nearest {
            Some((likeness, name)) if likeness > 0.75 => {
                format!("{key}: no flag has this name; did you mean {name}?")
            }
            _ => format!("{key}: no flag has this name; keys are flags without their dashes, as `ccm --help` lists them"),
        }
    })
}

/// The values of one key: as in `source`, or else as YAML reads them.
fn values(
    key: &str,
    value: &Spanned<Tree>,
    arg: &Arg,
    source: Option<&str>,
) -> Result<Vec<String>, String> {
    if let Some(text) = leaf(value, source) {
        return Ok(vec![text]);
    }
    match &value.value {
        Tree::Null => Err(format!("{key}: a value is missing")),
        Tree::Sequence(items) if takes_a_list(arg) => items
            .iter()
            .map(|item| {
                leaf(item, source).ok_or_else(|| {
                    format!(
                        "{key}: expected a list of plain values, and one of them is {}",
                        item.value.kind()
                    )
                })
            })
            .collect(),
        Tree::Map(fields) if PAIRS.contains(&key) => {
            let pairs: Vec<String> = fields
                .iter()
                // These have booleans and numbers, which are checked later, as YAML reads them.
                .map(|(name, value)| match leaf(value, None) {
                    Some(text) => Ok(format!("{}={text}", name.value)),
                    None => Err(format!(
                        "{key}: expected a plain value for {}, not {}",
                        name.value,
                        value.value.kind()
                    )),
                })
                .collect::<Result<_, _>>()?;
            Ok(vec![pairs.join(",")])
        }
        other => {
            let expected = if takes_a_list(arg) {
                "a value or a list of values"
            } else {
                "one value"
            };
            Err(format!("{key}: expected {expected}, not {}", other.kind()))
        }
    }
}

/// The text of a plain value: as in `source`, or else as YAML reads it. `None`: it is none.
fn leaf(value: &Spanned<Tree>, source: Option<&str>) -> Option<String> {
    match &value.value {
        Tree::Leaf(text) => Some(text.clone()),
        Tree::Typed(text) => {
            let written = source.and_then(|source| {
                let span = value.defined.span();
                let from = usize::try_from(span.byte_offset()?).ok()?;
                let bytes = usize::try_from(span.byte_len()?).ok()?;
                source.get(from..from.checked_add(bytes)?)
            });
            // With a tag a quoted text can be a number, too.
            let written = written.filter(|text| !text.starts_with(['"', '\'']));
            Some(written.unwrap_or(text).to_owned())
        }
        _ => None,
    }
}

/// Any YAML.
#[derive(Debug)]
enum Tree {
    Null,
    Leaf(String),
    /// A boolean or a number to YAML, which forgets how it was written: `0123`, `1.10`, `no`.
    Typed(String),
    Sequence(Vec<Spanned<Tree>>),
    Map(Vec<(Spanned<String>, Spanned<Tree>)>),
}

impl Tree {
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Leaf(_) | Self::Typed(_) => "a plain value",
            Self::Sequence(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

macro_rules! leaves {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E>(self, value: $type) -> Result<Tree, E> {
            Ok(Tree::Typed(value.to_string()))
        })*
    };
}

impl<'de> Visitor<'de> for Reader {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    leaves!(visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128, visit_f64: f64);

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<Tree, D::Error> {
        Tree::deserialize(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Tree::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Map(entries))
    }
}
