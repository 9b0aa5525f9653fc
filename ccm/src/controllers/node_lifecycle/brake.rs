//! The mass-absence brake: how many Nodes may be deleted now. Pure.
//!
//! Within a window, the ccm deletes at most `max(floor, share)` of the provider's Nodes, and less
//! than half of them. If more Nodes are due than the window still allows, the brake holds. While it
//! holds, the ccm deletes a Node only after its own absence has lasted for `hold` in valid passes.
//! The limit for each window stays the same, but is at least one. The brake holds until no absence
//! is left.
//!
//! Small clusters: one Node of one or two is half or more. If the brake does not hold yet, it still
//! lets one of two Nodes go without the wait for `hold`, on four conditions. It is the only due
//! Node. Nothing was deleted within the window. Floor or share allow one deletion. The other Node
//! was Ready and vouched for the provider in the same passes. Otherwise the Node waits for `hold`,
//! and the limit is one in each window. The only Node of a cluster stays: it has no witness, so its
//! passes are void.
//!
//! A Node counts once. A delete request without an answer counts, because it may have succeeded. If
//! that Node is due again, it was not deleted, and its next deletion takes the same room.
//!
//! A process does not know the deletions of the leader before it. So the share does not count in
//! the first window of each term.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::args::BrakeConfig;
use crate::planted::planted;

/// The deletions of the last window, and whether the brake holds.
#[derive(Debug)]
pub(super) struct Brake {
    config: BrakeConfig,
    /// The time and the Node's UID, oldest first.
    deletions: VecDeque<(Instant, String)>,
    holding: bool,
    /// The Nodes that were due since the brake began to hold, by UID, until [`Self::recognised`].
    /// They outlive a session.
    held: BTreeSet<String>,
    /// The share does not apply before this time: the former leader may have used it up.
    cautious_until: Option<Instant>,
}

/// The Nodes that are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due<'a> {
    /// For each Node that this pass may delete: how long its absence has lasted in valid passes.
    pub(super) held: &'a [Duration],
    /// How many other due Nodes wait for another answer.
    pub(super) waiting: usize,
    /// The UIDs of all due Nodes.
    pub(super) uids: &'a [&'a str],
    /// Whether a Ready Node vouched for each ABSENT answer in a row about the Nodes of `held`.
    pub(super) witnessed: bool,
    /// How many Nodes the provider has now: the due ones included, those being deleted not.
    pub(super) nodes: usize,
}

/// The brake's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The due Nodes that the ccm may delete, as indexes into `Due::held`.
    pub(super) allowed: Vec<usize>,
    /// The Node that the ccm may delete is one of two.
    pub(super) one_of_two: bool,
}

impl Brake {
    pub(super) fn new(config: BrakeConfig) -> Self {
        Self {
            config,
            deletions: VecDeque::new(),
            holding: false,
            held: BTreeSet::new(),
            cautious_until: None,
        }
    }

    /// Begins a term: the share does not apply for one window.
    pub(super) fn begin_term(&mut self, now: Instant) {
        self.cautious_until = Some(now + self.config.window);
    }

    /// Decides which of the due Nodes the ccm may delete. Does not count them as deleted.
    pub(super) fn judge(&mut self, due: &Due<'_>, now: Instant) -> Verdict {
        self.forget(now);
        let uids = if planted!(LostDeleteTakesRoom) {
            &[]
        } else {
            due.uids
        };
        let gone = self.gone(uids).len();
        let all = due.nodes.saturating_add(gone);
        let most = self.most(all, now);
        // Less than half of all Nodes. The exceptions follow.
        let limit = most.min(all.saturating_sub(1) / 2);
        let count = due.held.len() + due.waiting;
        let long_enough = |held: &Duration| *held >= self.config.hold;
        let one_of_two = !planted!(OneOfTwoStays)
            && !self.holding
            && (count, limit) == (1, 0)
            && due.witnessed
            && most > 0
            && gone == 0
            && due.held.first().is_none_or(|held| !long_enough(held));
        let limit = limit.max(usize::from(one_of_two));
        let room = limit.saturating_sub(gone);
        // A single due Node beyond the limit is enough to make the brake hold.
        self.holding |= count > room;
        if self.holding {
            self.held
                .extend(due.uids.iter().map(|uid| (*uid).to_owned()));
        }
        let room = if self.holding {
            // The limit is at least one Node in each window.
            limit.max(1).saturating_sub(gone)
        } else {
            room
        };
        let allowed: Vec<usize> = due
            .held
            .iter()
            .enumerate()
            .filter(|(_, held)| !self.holding || long_enough(held) || planted!(NoBrake))
            .map(|(place, _)| place)
            .take(if planted!(NoBrake) { usize::MAX } else { room })
            .collect();
        Verdict {
            allowed,
            one_of_two,
        }
    }

    /// Counts a deletion that is about to be sent.
    pub(super) fn count(&mut self, uid: &str, now: Instant) {
        self.deletions.push_back((now, uid.to_owned()));
    }

    /// Removes the last counted deletion of this Node: it certainly did not happen.
    pub(super) fn uncount(&mut self, uid: &str) {
        let last = self.deletions.iter().rposition(|(_, of)| of == uid);
        if let Some(last) = last {
            self.deletions.remove(last);
        }
    }

    /// The Nodes that were deleted within the window, by UID. A due Node still exists, so it does
    /// not count.
    pub(super) fn gone(&self, due: &[&str]) -> BTreeSet<&str> {
        let all = self.deletions.iter().map(|(_, uid)| uid.as_str());
        let due: BTreeSet<&str> = due.iter().copied().collect();
        all.filter(|uid| !due.contains(uid)).collect()
    }

    /// Stops holding: no absence is left that counts.
    pub(super) fn release(&mut self) {
        self.holding = false;
        self.held.clear();
    }

    /// Whether the Node was due since the brake began to hold, without [`Self::recognised`] since.
    pub(super) fn has_held(&self, uid: &str) -> bool {
        self.held.contains(uid)
    }

    /// A known state other than ABSENT came for the Node, or the provider's list has its instance.
    pub(super) fn recognised(&mut self, uid: &str) {
        self.held.remove(uid);
    }

    /// How long an absence must last while the brake holds.
    pub(super) fn hold(&self) -> Duration {
        self.config.hold
    }

    /// Whether the brake holds.
    pub(super) fn holds(&self) -> bool {
        self.holding
    }

    /// The larger one of floor and share.
    fn most(&self, nodes: usize, now: Instant) -> usize {
        let share = if self.cautious_until.is_some_and(|until| now < until) {
            0
        } else {
            (nodes as f64 * self.config.share).floor() as usize
        };
        share.max(self.config.floor)
    }

    fn forget(&mut self, now: Instant) {
        while let Some((first, _)) = self.deletions.front() {
            if now.saturating_duration_since(*first) < self.config.window {
                break;
            }
            self.deletions.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(15);

    fn brake() -> Brake {
        Brake::new(BrakeConfig::default())
    }

    /// The verdict if no Ready Node vouched for the provider.
    fn judged(brake: &mut Brake, held: &[Duration], nodes: usize, now: Instant) -> Verdict {
        let due = Due {
            held,
            waiting: 0,
            uids: &[],
            witnessed: false,
            nodes,
        };
        brake.judge(&due, now)
    }

    fn allowed(brake: &mut Brake, due: &[Duration], nodes: usize, now: Instant) -> usize {
        let verdict = judged(brake, due, nodes, now);
        for place in &verdict.allowed {
            brake.count(&format!("{now:?} {place}"), now);
        }
        verdict.allowed.len()
    }

    #[test]
    fn l6_at_most_two_or_a_tenth_and_never_half() {
        for (nodes, most) in [
            (3, 1),
            (4, 1),
            (5, 2),
            (20, 2),
            (29, 2),
            (30, 3),
            (1000, 100),
        ] {
            let now = Instant::now();
            let due = vec![Duration::ZERO; most];
            assert_eq!(allowed(&mut brake(), &due, nodes, now), most, "{nodes}");
            let due = vec![Duration::ZERO; most + 1];
            assert_eq!(
                allowed(&mut brake(), &due, nodes, now),
                0,
                "{nodes}: nothing goes beyond it"
            );
        }
    }

    #[test]
    fn l6_one_of_two_goes_at_once_where_the_other_one_vouches() {
        let now = Instant::now();
        let one = Due {
            held: &[Duration::ZERO],
            waiting: 0,
            uids: &[],
            witnessed: true,
            nodes: 2,
        };
        let verdict = brake().judge(&one, now);
        assert_eq!((verdict.allowed, verdict.one_of_two), (vec![0], true));
        // If one of the conditions fails, the Node stays.
        let two = [Duration::ZERO; 2];
        let none = BrakeConfig {
            floor: 0,
            share: 0.0,
            ..BrakeConfig::default()
        };
        for (what, mut brake, due) in [
            (
                "nobody vouches",
                brake(),
                Due {
                    witnessed: false,
                    ..one
                },
            ),
            ("both are due", brake(), Due { held: &two, ..one }),
            ("another one waits", brake(), Due { waiting: 1, ..one }),
            ("none may ever go", Brake::new(none), one),
        ] {
            let verdict = brake.judge(&due, now);
            assert!(verdict.allowed.is_empty() && brake.holds(), "{what}");
            // A brake that holds does so until no absence is left.
            assert!(brake.judge(&one, now).allowed.is_empty(), "{what}");
        }
        // One Node was deleted within the window, so two of three Nodes are left.
        let mut brake = brake();
        brake.count("gone", now);
        assert!(brake.judge(&one, now).allowed.is_empty());
        // After the hold, the ccm may delete the Node.
        let late = brake.judge(
            &Due {
                held: &[LONG],
                ..one
            },
            now + LONG,
        );
        assert_eq!((late.allowed, late.one_of_two), (vec![0], false));
    }

    #[test]
    fn l6_those_that_wait_for_an_answer_are_due_too() {
        let due = Due {
            held: &[Duration::ZERO; 2],
            waiting: 1,
            uids: &[],
            witnessed: true,
            nodes: 20,
        };
        let mut brake = brake();
        let verdict = brake.judge(&due, Instant::now());
        assert!(brake.holds() && verdict.allowed.is_empty());
    }

    #[test]
    fn l6_one_or_two_nodes_wait_for_the_hold_and_go_one_by_one() {
        for nodes in [1, 2] {
            let mut brake = brake();
            let now = Instant::now();
            assert_eq!(allowed(&mut brake, &[Duration::ZERO], nodes, now), 0);
            assert!(brake.holds());
            assert_eq!(allowed(&mut brake, &[LONG], nodes, now + LONG), 1);
            assert_eq!(allowed(&mut brake, &[LONG], nodes, now + LONG), 0);
        }
    }

    #[test]
    fn l6_the_window_slides_and_the_hold_sticks() {
        let mut brake = brake();
        let start = Instant::now();
        assert_eq!(allowed(&mut brake, &[Duration::ZERO; 2], 20, start), 2);
        // A third absence in the window waits for the hold, even after the window.
        let third = judged(
            &mut brake,
            &[Duration::ZERO],
            18,
            start + Duration::from_mins(1),
        );
        assert!(third.allowed.is_empty() && brake.holds());
        let later = start + Duration::from_mins(11);
        let third = judged(&mut brake, &[Duration::from_mins(10)], 18, later);
        assert!(third.allowed.is_empty());
        assert_eq!(
            allowed(&mut brake, &[LONG], 18, start + Duration::from_mins(16)),
            1
        );
        // The caller releases the brake when no absence is left.
        judged(&mut brake, &[], 17, start + Duration::from_mins(17));
        assert!(brake.holds());
        brake.release();
        assert_eq!(
            allowed(
                &mut brake,
                &[Duration::ZERO],
                17,
                start + Duration::from_mins(18)
            ),
            1
        );
    }

    #[test]
    fn l6_after_the_hold_the_pace_is_the_same() {
        let mut brake = brake();
        let start = Instant::now();
        let mut left = 100;
        assert_eq!(allowed(&mut brake, &[Duration::ZERO; 50], left, start), 0);
        for round in 0..3 {
            let now = start + LONG + Duration::from_mins(10) * round;
            let due = vec![LONG; left - 50];
            let gone = allowed(&mut brake, &due, left, now);
            assert_eq!(gone, left / 10, "round {round}");
            left -= gone;
            assert_eq!(
                allowed(&mut brake, &due[gone..], left, now + Duration::from_mins(9)),
                0
            );
        }
    }

    #[test]
    fn l6_each_term_begins_with_the_floor_alone() {
        let first = Instant::now();
        let start = first + Duration::from_hours(1);
        let new = || {
            let mut brake = brake();
            brake.begin_term(first);
            brake.begin_term(start);
            brake
        };
        let later = start + Duration::from_mins(10);
        for (count, now, goes) in [(2, start, 2), (3, start, 0), (100, later, 100)] {
            let due = vec![Duration::ZERO; count];
            assert_eq!(allowed(&mut new(), &due, 1000, now), goes, "{count}");
        }
    }

    #[test]
    fn a_deletion_that_did_not_happen_does_not_count() {
        let mut brake = brake();
        let now = Instant::now();
        brake.count("a", now);
        brake.count("b", now);
        brake.uncount("b");
        assert_eq!(judged(&mut brake, &[Duration::ZERO], 20, now).allowed, [0]);
        assert_eq!((brake.gone(&["a"]).len(), brake.gone(&["b"]).len()), (0, 1));
    }

    #[test]
    fn l6_a_node_whose_delete_request_was_not_answered_counts_once() {
        let now = Instant::now();
        let mut brake = brake();
        brake.count("again", now);
        let due = |uids| Due {
            held: &[Duration::ZERO],
            waiting: 0,
            uids,
            witnessed: true,
            nodes: 3,
        };
        let verdict = brake.judge(&due(&["again"]), now);
        assert_eq!(verdict.allowed, [0]);
        brake.count("again", now);
        // The first request deleted the Node after all, so this deletion still counts.
        brake.uncount("again");
        assert!(brake.judge(&due(&["another"]), now).allowed.is_empty());
    }

    #[test]
    fn l6_one_of_many_is_not_one_of_two() {
        let verdict = judged(&mut brake(), &[Duration::ZERO], 10, Instant::now());
        assert!(verdict.allowed == [0] && !verdict.one_of_two, "{verdict:?}");
    }
}
