//! Checks and their results.

use std::fmt::{self, Write as _};

use futures::future::BoxFuture;

use super::hooks::Hook;
use super::plain::plain;
use super::run::Run;

/// The result of a check or of a step. Only `Ok` means passed.
pub type Verdict<T = ()> = Result<T, Stop>;

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    /// `<service>/<kebab-name>`.
    pub id: &'static str,
    /// The rules that it tests, by the IDs in the comments of the contract's `.proto` files.
    pub rules: &'static [&'static str],
    /// Its subject, in one sentence.
    pub title: &'static str,
    /// The check is skipped if one of these is missing.
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

/// A check: ID, rules, title, what it needs (if anything), the async function.
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

/// The needs of a check besides a provider that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// `Capabilities.instances`.
    Instances,
    /// ListInstances.
    InstanceListing,
    /// `InstanceCapability.power_state`.
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
    /// The cloud keeps marks on routes (`route_marks` of suite.yaml).
    RouteMarks,
    /// `Capabilities.clusters`.
    Clusters,
    /// `Capabilities.volumes`.
    Volumes,
    /// WatchChanges.
    Changes,
    /// This key under `hooks` in suite.yaml.
    Hook(Hook),
    /// The suite starts the provider (`--command`).
    Command,
}

/// Why a check did not pass.
#[derive(Debug)]
pub enum Stop {
    /// The provider violated a rule.
    Failed(Box<Failed>),
    /// The provider violated a SHOULD.
    Warned(Box<Failed>),
    /// The check could not run completely.
    Skipped(Skipped),
}

/// A violated rule.
#[derive(Debug, Clone)]
pub struct Failed {
    /// The rule's ID; `(hook)` or `(the suite)` if that is at fault and not the provider.
    pub rule: String,
    /// The request or the action.
    pub sent: String,
    /// The requirement of the rule.
    pub expected: String,
    /// The answer or the observation.
    pub came: String,
    /// The RPC without an answer by its deadline, if that is the violation. `some call` if the
    /// whole check did not end.
    pub unanswered: Option<&'static str>,
    /// The failure that ended the check before it tested anything: RPC, code, and reason (else the
    /// message). The report groups checks with the same cause.
    pub cause: Option<String>,
}

/// Why a check was skipped.
#[derive(Debug, Clone)]
pub struct Skipped {
    /// The reason, for people.
    pub reason: String,
    /// The missing part.
    pub lack: Lack,
}

/// The missing part of a skipped check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The provider or its cloud does not have the check's subject, or this machine cannot show it.
    /// This counts like passed.
    Capability,
    /// The suite lacks a part of its setup, such as a hook, an object in suite.yaml, or
    /// `--command`: not tested completely.
    Setup,
    /// The provider did not answer in earlier checks, so the suite did not run this one.
    Answer,
}

impl Stop {
    /// A violation of this rule. Long texts are cut.
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

    /// The RPC without an answer, if that ended the check.
    pub(super) fn unanswered(&self) -> Option<&'static str> {
        match self {
            Self::Failed(failed) | Self::Warned(failed) => failed.unanswered,
            Self::Skipped(_) => None,
        }
    }

    /// Turns a failure into a warning, for a rule with SHOULD.
    #[must_use]
    pub fn softened(self) -> Self {
        match self {
            Self::Failed(failed) => Self::Warned(failed),
            other => other,
        }
    }

    /// Skips the check: the provider or its cloud does not have its subject, or this machine cannot
    /// show it.
    pub fn not_offered(reason: impl Into<String>) -> Self {
        Self::Skipped(Skipped {
            reason: reason.into(),
            lack: Lack::Capability,
        })
    }

    /// Skips the check: the suite lacks the setup for it.
    pub fn not_set_up(reason: impl Into<String>) -> Self {
        Self::Skipped(Skipped {
            reason: reason.into(),
            lack: Lack::Setup,
        })
    }
}

/// Adds the preceding actions to a failure, so that a person can repeat them.
pub(super) fn after<T>(what: impl fmt::Display, came: Verdict<T>) -> Verdict<T> {
    came.map_err(|mut stop| {
        if let Stop::Failed(failed) | Stop::Warned(failed) = &mut stop {
            failed.sent = format!("{what}; then {}", failed.sent);
        }
        stop
    })
}

/// Fails with this rule if the condition does not hold. For an observation about a single call, use
/// `Exchange::must`.
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

/// Like [`must`], for a rule with SHOULD: a violation ends the check with a warning, which is no
/// failure. Later steps of the check then do not run.
pub(super) fn should(
    holds: bool,
    rule: &str,
    sent: impl fmt::Display,
    expected: impl fmt::Display,
    came: impl fmt::Display,
) -> Verdict {
    must(holds, rule, sent, expected, came).map_err(Stop::softened)
}

/// Fails with this rule if the two values differ.
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

/// The most bytes of a text that [`cut`] returns, before ` …`.
const SHOWN_BYTES: usize = 1_500;
/// The most bytes of a value's debug form that [`cut`] converts.
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

/// The beginning of a formatted text.
struct Cut(String);

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = READ_BYTES - self.0.len();
        let end = text.floor_char_boundary(left.min(text.len()));
        self.0.push_str(&text[..end]);
        // An error stops the formatting, so that a request of 16 MiB is not formatted completely.
        if end < text.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}
