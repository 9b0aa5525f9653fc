//! Scenarios: the actions on each side, and the differences that are allowed afterwards.

use std::collections::BTreeMap;
use std::pin::Pin;

use crate::side::{Side, Who};

/// Observations of a scenario besides the objects, such as numbers of calls.
pub type Facts = BTreeMap<String, String>;

type Played = Pin<Box<dyn Future<Output = Facts>>>;

/// Something that happens to both clusters. Its name is the namespace of its Services, and the
/// prefix of its Nodes' names.
pub struct Scenario {
    /// A DNS label.
    pub name: &'static str,
    /// The title in the table.
    pub what: &'static str,
    /// The lines of docs/behaviour.md that the scenario is about.
    pub ids: &'static [&'static str],
    /// The required differences, and some that depend on time. No others are allowed.
    pub differences: Vec<Difference>,
    /// The actions on a side.
    pub play: Box<dyn Fn(Side) -> Played>,
}

/// A difference in the snapshots that a line of docs/behaviour.md requires.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The `▲` line.
    pub id: &'static str,
    /// The description in the table.
    pub why: &'static str,
    pub what: What,
}

/// The difference.
#[derive(Clone, Debug)]
pub enum What {
    /// One line.
    Line {
        path: String,
        /// The line on the Go CCM's side. `None`: no such line.
        go: Option<String>,
        /// The line on the ccm's side.
        ours: Option<String>,
    },
    /// A whole object that only this side has, by the prefix of its lines.
    OnlyThere(String, Who),
    /// One event: this side records it at least `least` times. The other records it at least once
    /// and at most `most` times, and not more often than this side.
    Again {
        path: String,
        who: Who,
        least: u64,
        most: u64,
    },
}

impl What {
    fn again(who: Who, line: &str, least: u64, most: u64) -> Self {
        Self::Again {
            path: line.to_owned(),
            who,
            least,
            most,
        }
    }

    pub fn covers(&self, line: &str) -> bool {
        match self {
            Self::Line { path, .. } | Self::Again { path, .. } => path == line,
            Self::OnlyThere(object, _) => line.starts_with(object.as_str()),
        }
    }

    /// Whether the lines are as required.
    pub fn holds(&self, found_go: Option<&String>, found_ours: Option<&String>) -> bool {
        match self {
            Self::Line { go, ours, .. } => (go.as_ref(), ours.as_ref()) == (found_go, found_ours),
            Self::OnlyThere(_, Who::Go) => found_go.is_some() && found_ours.is_none(),
            Self::OnlyThere(_, Who::Ours) => found_go.is_none() && found_ours.is_some(),
            Self::Again {
                who, least, most, ..
            } => {
                let (more, less) = match who {
                    Who::Go => (found_go, found_ours),
                    Who::Ours => (found_ours, found_go),
                };
                let times = |found: Option<&String>| found.and_then(|it| times_of(it));
                let (more, less) = (times(more).unwrap_or(0), times(less).unwrap_or(0));
                more >= *least && (1..=*most.min(&more)).contains(&less)
            }
        }
    }
}

impl Scenario {
    /// A scenario after which the two sides are equal.
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

    /// Requires this difference in this line.
    pub fn differs(
        self,
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
        self.known(id, why, what)
    }

    /// Requires that only this side records this event, and only once.
    pub fn only(self, id: &'static str, why: &'static str, who: Who, line: &str) -> Self {
        self.only_times(id, why, who, line, 1)
    }

    /// Requires that only this side records this event, and this many times.
    pub fn only_times(
        self,
        id: &'static str,
        why: &'static str,
        who: Who,
        line: &str,
        times: u64,
    ) -> Self {
        let seen = said(times);
        match who {
            Who::Go => self.differs(id, why, line, Some(&seen), None),
            Who::Ours => self.differs(id, why, line, None, Some(&seen)),
        }
    }

    /// Requires that this side records this event at least this often, and the other side once.
    pub fn again(
        self,
        id: &'static str,
        why: &'static str,
        who: Who,
        line: &str,
        least: u64,
    ) -> Self {
        self.known(id, why, What::again(who, line, least, 1))
    }

    /// Requires that this side records this event at least this often, and the other side at least
    /// once and not more often than this side.
    pub fn not_less(
        self,
        id: &'static str,
        why: &'static str,
        who: Who,
        line: &str,
        least: u64,
    ) -> Self {
        self.known(id, why, What::again(who, line, least, u64::MAX))
    }

    /// Requires that only this side has this object.
    pub fn only_there(self, id: &'static str, why: &'static str, who: Who, object: &str) -> Self {
        let what = What::OnlyThere(object.to_owned(), who);
        self.known(id, why, what)
    }

    fn known(mut self, id: &'static str, why: &'static str, what: What) -> Self {
        self.differences.push(Difference { id, why, what });
        self
    }

    /// The cited `▲` lines with their reasons, each pair once.
    pub fn cited(&self) -> Vec<(&'static str, &'static str)> {
        let mut cited: Vec<_> = self.differences.iter().map(|it| (it.id, it.why)).collect();
        cited.sort_unstable();
        cited.dedup();
        cited
    }
}

/// How often an event was recorded. Five and more are one text, because such numbers depend on
/// time.
pub fn said(times: u64) -> String {
    match times {
        1 => "seen".to_owned(),
        2..5 => format!("seen {times} times"),
        _ => AGAIN_AND_AGAIN.to_owned(),
    }
}

const AGAIN_AND_AGAIN: &str = "seen again and again";

/// Five stands for all larger numbers.
fn times_of(said: &str) -> Option<u64> {
    match said {
        "seen" => Some(1),
        AGAIN_AND_AGAIN => Some(5),
        other => other
            .strip_prefix("seen ")?
            .strip_suffix(" times")?
            .parse()
            .ok(),
    }
}

#[test]
fn how_often_an_event_was_told_is_read_as_it_was_said() {
    for times in 1..=5 {
        assert_eq!(times_of(&said(times)), Some(times));
    }
    assert_eq!(times_of(&said(70)), Some(5));
}

/// No facts.
pub fn nothing() -> Facts {
    Facts::new()
}

/// One fact.
pub fn fact(name: &str, value: &(impl ToString + ?Sized)) -> Facts {
    Facts::from([(format!("fact: {name}"), value.to_string())])
}
