//! What a scenario is: what is done on each side, and how the two may differ afterwards.

use std::collections::BTreeMap;
use std::pin::Pin;

use crate::side::{Side, Who};

/// What a scenario saw beside the objects, such as how often something was asked.
pub type Facts = BTreeMap<String, String>;

type Played = Pin<Box<dyn Future<Output = Facts>>>;

/// Something that happens to both clusters. Its name is the namespace of its Services and what its Nodes' names begin with.
pub struct Scenario {
    /// A DNS label.
    pub name: &'static str,
    /// What happens, for the table.
    pub what: &'static str,
    /// The lines of the behaviour that it is about.
    pub ids: &'static [&'static str],
    /// The differences that there must be, and no other.
    pub differences: Vec<Difference>,
    /// What is done on a side.
    pub play: Box<dyn Fn(Side) -> Played>,
}

/// What differs in the snapshots, because a line of the behaviour says so.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The `▲` line.
    pub id: &'static str,
    /// What it is, for the table.
    pub why: &'static str,
    pub what: What,
}

/// What differs.
#[derive(Clone, Debug)]
pub enum What {
    /// One line.
    Line {
        path: String,
        /// What stands there after the Go CCM; nothing where absent.
        go: Option<String>,
        /// What stands there after ours.
        ours: Option<String>,
    },
    /// A whole object, named by what its lines begin with: only this side has it.
    OnlyThere(String, Who),
}

impl What {
    pub fn covers(&self, line: &str) -> bool {
        match self {
            Self::Line { path, .. } => path == line,
            Self::OnlyThere(object, _) => line.starts_with(object.as_str()),
        }
    }

    /// Whether what stands in such a line is as it should be.
    pub fn holds(&self, found_go: Option<&String>, found_ours: Option<&String>) -> bool {
        match self {
            Self::Line { go, ours, .. } => (go.as_ref(), ours.as_ref()) == (found_go, found_ours),
            Self::OnlyThere(_, Who::Go) => found_go.is_some() && found_ours.is_none(),
            Self::OnlyThere(_, Who::Ours) => found_go.is_none() && found_ours.is_some(),
        }
    }
}

impl Scenario {
    /// In which the two are equal.
    pub fn new<Play, Done>(
        name: &'static str,
        what: &'static str,
        ids: &'static [&'static str],
        play: Play,
    ) -> Self
    where
        Play: Fn(Side, &'static str) -> Done + 'static,
        Done: Future<Output = Facts> + 'static,
    {
        Self {
            name,
            what,
            ids,
            differences: Vec::new(),
            play: Box::new(move |side| Box::pin(play(side, name))),
        }
    }

    /// Except for this line.
    pub fn differs(
        mut self,
        id: &'static str,
        why: &'static str,
        line: &str,
        go: Option<&str>,
        ours: Option<&str>,
    ) -> Self {
        let what = What::Line {
            path: line.to_owned(),
            go: go.map(str::to_owned),
            ours: ours.map(str::to_owned),
        };
        self.differences.push(Difference { id, why, what });
        self
    }

    /// Except for what this line says, which only one side sees.
    pub fn only(self, id: &'static str, why: &'static str, who: Who, line: &str) -> Self {
        match who {
            Who::Go => self.differs(id, why, line, Some("seen"), None),
            Who::Ours => self.differs(id, why, line, None, Some("seen")),
        }
    }

    /// Except for this object, which only one side has.
    pub fn only_there(
        mut self,
        id: &'static str,
        why: &'static str,
        who: Who,
        object: &str,
    ) -> Self {
        let what = What::OnlyThere(object.to_owned(), who);
        self.differences.push(Difference { id, why, what });
        self
    }

    /// The `▲` lines that are cited, each once.
    pub fn cited(&self) -> Vec<(&'static str, &'static str)> {
        let mut cited: Vec<_> = self.differences.iter().map(|it| (it.id, it.why)).collect();
        cited.sort_unstable();
        cited.dedup();
        cited
    }
}

/// No facts.
pub fn nothing() -> Facts {
    Facts::new()
}

/// One fact.
pub fn fact(name: &str, value: impl ToString) -> Facts {
    Facts::from([(format!("fact: {name}"), value.to_string())])
}
