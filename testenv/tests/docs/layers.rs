//! Checks the layers of `ccm/src`, and that its decision modules do no IO.
//!
//! The table under "Layers" in `docs/architecture.md` is the rule. A room imports rooms of lower
//! layers only: none of its own layer, none above. Each path counts: in a `use` item, inline or in
//! a macro. So does each module through which a re-export leads. Code that only tests, or only
//! tests and `make fuzz`, compile is exempt. `main.rs` is another crate, which can use only the
//! public items of the library.

mod pure;
pub(crate) mod source;
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use source::{Code, Named};

/// Each room's layer.
type Layers = BTreeMap<String, u32>;
/// For two rooms, the places at which the first one imports the second one.
type Edges = BTreeMap<(String, String), Vec<String>>;

/// The folder whose modules are separate rooms.
const FOLDER: &str = "controllers";

/// Reads the table.
pub(crate) fn table(document: &str) -> Result<Layers, String> {
    let mut layers = Layers::new();
    let section = document
        .split_once("\n### Layers\n")
        .ok_or("there is no section \"### Layers\"")?
        .1;
    let section = section.split("\n## ").next().unwrap_or_default();
    for line in section.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [layer, rooms, ..] = cells.as_slice() else {
            return Err(format!("{line:?} is no row of a layer"));
        };
        let Ok(layer) = layer.parse() else {
            continue;
        };
        for room in rooms.split('`').skip(1).step_by(2) {
            if layers.insert(room.to_owned(), layer).is_some() {
                return Err(format!("{room} has two layers"));
            }
        }
    }
    if layers.is_empty() {
        return Err("the section \"### Layers\" has no table".to_owned());
    }
    Ok(layers)
}

/// The room of a module. `None`: the root, or the folder of the controllers.
fn room(module: &[String]) -> Option<String> {
    match module {
        [folder, controller, ..] if folder == FOLDER => Some(format!("{FOLDER}/{controller}")),
        [folder] if folder == FOLDER => None,
        [room, ..] => Some(room.clone()),
        [] => None,
    }
}

/// The breaches of the layers, and of the rule for decision modules. `sources`: by path below
/// `src`.
pub(crate) fn wrong(layers: &Layers, sources: &BTreeMap<String, String>) -> Vec<String> {
    let code = match Code::read(sources) {
        Ok(code) => code,
        Err(wrong) => return wrong,
    };
    let mut wrong = rooms_without_a_layer(layers, &code);
    let edges = edges(&code);
    for ((from, to), places) in &edges {
        let (Some(own), Some(other)) = (layers.get(from), layers.get(to)) else {
            continue;
        };
        let direction = match other.cmp(own) {
            std::cmp::Ordering::Less => continue,
            std::cmp::Ordering::Equal => "sideways",
            std::cmp::Ordering::Greater => "upward",
        };
        for place in places {
            wrong.push(format!(
                "{place}: {from} (layer {own}) imports {to} (layer {other}): {direction}"
            ));
        }
    }
    wrong.extend(circle(&edges));
    wrong.extend(pure::wrong(&code));
    wrong
}

fn rooms_without_a_layer(layers: &Layers, code: &Code) -> Vec<String> {
    let there: BTreeSet<String> = code.modules().filter_map(|module| room(module)).collect();
    let listed = layers.keys().cloned().collect();
    let lacking = there.difference(&listed);
    let lacking = lacking.map(|room| format!("{room}: the table of the layers does not have it"));
    let gone = listed.difference(&there);
    let gone = gone.map(|room| format!("{room}: the table has it, and ccm/src does not"));
    let root = code.root_items().iter();
    let root = root.map(|line| format!("lib.rs:{line}: the root declares rooms, and nothing else"));
    lacking.chain(gone).chain(root).collect()
}

fn edges(code: &Code) -> Edges {
    let mut edges = Edges::new();
    for named in code.names() {
        let Some(from) = room(&named.module) else {
            continue;
        };
        for to in rooms_of(code, named) {
            if to != from {
                let places: &mut Vec<String> = edges.entry((from.clone(), to)).or_default();
                let place = named.place.clone();
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
    }
    edges
}

/// The rooms on a path: the one that it names, and those that re-export the named item.
fn rooms_of(code: &Code, named: &Named) -> BTreeSet<String> {
    let through = code.modules_through(&named.path);
    through.iter().filter_map(|module| room(module)).collect()
}

/// The rooms from which imports lead back to the same room.
fn in_a_circle(edges: &Edges) -> BTreeSet<String> {
    let rooms = edges.keys().map(|(from, _)| from);
    let rooms = rooms.filter(|room| reached(edges, room).contains(room.as_str()));
    rooms.cloned().collect()
}

/// The rooms that this one imports, and those that they import.
fn reached<'a>(edges: &'a Edges, start: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(room) = open.pop() {
        let imports = edges.keys().filter(|(from, _)| from == room);
        let imports = imports.map(|(_, to)| to.as_str());
        open.extend(imports.filter(|to| reached.insert(*to)));
    }
    reached
}

/// The rooms in a circle, with one place for each of their imports.
fn circle(edges: &Edges) -> Option<String> {
    let rooms = in_a_circle(edges);
    let inside = edges
        .iter()
        .filter(|((from, to), _)| rooms.contains(from) && rooms.contains(to));
    let places: Vec<String> = inside
        .filter_map(|((from, to), places)| {
            Some(format!("{from} imports {to} in {}", places.first()?))
        })
        .collect();
    (!places.is_empty()).then(|| format!("rooms in a circle: {}", places.join("; ")))
}

/// The files in the folder of this root module and below it, by path, without `main.rs`, which is
/// the root of another crate.
pub(crate) fn sources_beside(lib: &Path) -> Result<BTreeMap<String, String>, String> {
    let folder = lib.parent().unwrap_or(lib);
    let files = crate::sources::files(folder, &["rs"]).into_iter();
    files
        .filter(|file| file != "main.rs")
        .map(|file| {
            let path = folder.join(&file);
            let text = fs::read_to_string(&path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Ok((file, text))
        })
        .collect()
}

/// The rooms that import each other in a circle.
pub(crate) fn rooms_in_a_circle(code: &Code) -> BTreeSet<String> {
    in_a_circle(&edges(code))
}
