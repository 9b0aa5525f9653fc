//! What a check is, and how it ends.

use std::fmt::{self, Write as _};

use futures::future::BoxFuture;

use super::hooks::Hook;
use super::plain::plain;
use super::run::Run;

/// How a check ended; what is not `Ok` has not passed.
pub type Verdict<T = ()> = Result<T, Stop>;

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    /// `<service>/<kebab-name>`.
    pub id: &'static str,
    /// The rules that it shows, by the IDs in the comments of the contract's `.proto` files.
    pub rules: &'static [&'static str],
    /// What it shows, in one sentence.
    pub title: &'static str,
    /// Without these it is skipped.
    pub needs: &'static [Need],
    pub(super) run: for<'a> fn(&'a Run) -> BoxFuture<'a, Verdict>,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A check in one line or five: ID, rules, title, what it needs, the async function.
macro_rules! check {
    ($id:literal, [$($rule:literal),+ $(,)?], $title:literal, $run:expr) => {
        check!($id, [$($rule),+], $title, [], $run)
    };
    ($id:literal, [$($rule:literal),+ $(,)?], $title:literal, [$($need:expr),* $(,)?], $run:expr) => {
        $crate::check::Check {
            id: $id,
            rules: &[$($rule),+],
            title: $title,
            needs: &[$($need),*],
            run: |run| Box::pin(($run)(run)),
        }
    };
}
pub(super) use check;

/// What a check needs beyond a provider that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// `Capabilities.instances`.
    Instances,
    /// ListInstances.
    InstanceListing,
    /// RUNNING and STOPPED are told apart.
    PowerState,
    /// `Capabilities.zones`.
    Zones,
    /// `Capabilities.load_balancers`.
    LoadBalancers,
    /// ListLoadBalancers.
    LoadBalancerListing,
    /// `in_sync` in GetLoadBalancer.
    InSync,
    /// The key `shared_load_balancer` of suite.yaml.
    SharedLoadBalancer,
    /// `Capabilities.routes`.
    Routes,
    /// The cloud keeps marks with routes (`route_marks` of suite.yaml).
    RouteMarks,
    /// `Capabilities.clusters`.
    Clusters,
    /// `Capabilities.volumes`.
    Volumes,
    /// WatchChanges.
    Changes,
    /// A line in suite.yaml under `hooks`.
    Hook(Hook),
    /// The suite starts the provider itself (`--command`).
    Command,
}

/// Why a check did not pass.
#[derive(Debug)]
pub enum Stop {
    /// The provider broke a rule.
    Failed(Box<Failed>),
    /// The provider does not do what it SHOULD.
    Warned(Box<Failed>),
    /// It cannot be shown here.
    Skipped(Skipped),
}

/// A broken rule.
#[derive(Debug, Clone)]
pub struct Failed {
    /// Its ID.
    pub rule: String,
    /// What was sent, or done.
    pub sent: String,
    /// What the rule asks for.
    pub expected: String,
    /// What came instead.
    pub came: String,
    /// The RPC that was not answered at all by its deadline, where that is what came.
    pub unanswered: Option<&'static str>,
    /// The failure that ended the check before it could show anything, without what names the object: checks with the same one are told together.
    pub cause: Option<String>,
}

/// Why a check was skipped.
#[derive(Debug, Clone)]
pub struct Skipped {
    /// In words.
    pub reason: String,
    /// What lacks.
    pub lack: Lack,
}

/// What lacks for a check that was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The provider does not offer it: as good as passed.
    Capability,
    /// The suite was not told how (a hook, an object in suite.yaml, `--command`): not shown.
    Setup,
    /// The provider did not answer in checks before this one: not tried.
    Answer,
}

impl Stop {
    /// The provider broke this rule. What is shown is cut to what a person reads.
    pub fn failed(
        rule: impl Into<String>,
        sent: impl fmt::Display,
        expected: impl fmt::Display,
        came: impl fmt::Display,
    ) -> Self {
        Self::Failed(Box::new(Failed {
            rule: rule.into(),
            sent: cut(&sent),
            expected: cut(&expected),
            came: cut(&came),
            unanswered: None,
            cause: None,
        }))
    }

    /// The RPC that was not answered at all, where that is why the check ended.
    pub(super) fn unanswered(&self) -> Option<&'static str> {
        match self {
            Self::Failed(failed) | Self::Warned(failed) => failed.unanswered,
            Self::Skipped(_) => None,
        }
    }

    /// What was a failure, of a rule that is a SHOULD.
    #[must_use]
    pub fn softened(self) -> Self {
        match self {
            Self::Failed(failed) => Self::Warned(failed),
            other => other,
        }
    }

    /// The provider does not offer it.
    pub fn not_offered(reason: impl Into<String>) -> Self {
        Self::Skipped(Skipped {
            reason: reason.into(),
            lack: Lack::Capability,
        })
    }

    /// The suite was not told how.
    pub fn not_set_up(reason: impl Into<String>) -> Self {
        Self::Skipped(Skipped {
            reason: reason.into(),
            lack: Lack::Setup,
        })
    }
}

/// What is found after this was done: without it nobody could do it again.
pub(super) fn after<T>(what: impl fmt::Display, came: Verdict<T>) -> Verdict<T> {
    came.map_err(|mut stop| {
        if let Stop::Failed(failed) | Stop::Warned(failed) = &mut stop {
            failed.sent = format!("{what}; then {}", failed.sent);
        }
        stop
    })
}

/// Fails with this rule unless it holds. For what is seen of more than one call, or of no call; a single one has `Exchange::must`.
pub(super) fn must(
    holds: bool,
    rule: &str,
    sent: impl fmt::Display,
    expected: impl fmt::Display,
    came: impl fmt::Display,
) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(Stop::failed(rule, sent, expected, came))
    }
}

/// The same of a rule that is a SHOULD: where it does not hold the check ends with a warning, and the provider passes. It is the last that a check asks.
pub(super) fn should(
    holds: bool,
    rule: &str,
    sent: impl fmt::Display,
    expected: impl fmt::Display,
    came: impl fmt::Display,
) -> Verdict {
    must(holds, rule, sent, expected, came).map_err(Stop::softened)
}

/// Two values that must be equal by this rule.
pub(super) fn must_equal<T: PartialEq + fmt::Debug + ?Sized>(
    came: &T,
    expected: &T,
    rule: &str,
    sent: impl fmt::Display,
) -> Verdict {
    must(
        came == expected,
        rule,
        sent,
        format_args!("{expected:?}"),
        format_args!("{came:?}"),
    )
}

/// As much of a text as a person reads.
const SHOWN_BYTES: usize = 1_500;
/// As much of Rust's form of it as is looked at.
const READ_BYTES: usize = 16 * 1024;

pub(super) fn cut(what: &dyn fmt::Display) -> String {
    let mut read = Cut(String::new());
    let whole = write!(read, "{what}").is_ok();
    let mut shown = plain(&read.0);
    if !whole || shown.len() > SHOWN_BYTES {
        shown.truncate(shown.floor_char_boundary(SHOWN_BYTES));
        shown.push_str(" …");
    }
    shown
}

/// The beginning of what is written to it.
struct Cut(String);

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = READ_BYTES - self.0.len();
        let end = text.floor_char_boundary(left.min(text.len()));
        self.0.push_str(&text[..end]);
        // An error ends the formatting: a request of 16 MiB is not written out to be thrown away.
        if end < text.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}
