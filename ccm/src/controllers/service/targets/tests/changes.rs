//! A table of which changes of a Node change a set.

use super::*;

const PLAIN: Edit = |_| {};
const OUT: Edit = |n| label(n, EXCLUDE_LABEL, "true");
const OUT_TOO: Edit = |n| label(n, EXCLUDE_LABEL, "");
const BACK: Edit = |n| label(n, EXCLUDE_LABEL, "false");
const TAINTED: Edit = |n| taint(n, "example.com/other");
const LEAVING: Edit = |n| taint(n, AUTOSCALER_TAINT);
const LABELLED: Edit = |n| label(n, "example.com/rack", "1");
const READY: Edit = |n| condition(n, "Ready", "True");
const NOT_READY: Edit = |n| condition(n, "Ready", "False");
const FULL: Edit = |n| condition(n, "DiskPressure", "True");
const NO_ID: Edit = |n| n.spec.get_or_insert_default().provider_id = None;
const OTHER_ID: Edit = |n| n.spec.get_or_insert_default().provider_id = Some("mock://other".into());
const GOING: Edit = |n| n.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));

/// The name of the change, the parts of the Node that stay, the part before and after the change,
/// and whether the set changes with the scopes OWNED and ALL.
type Row = (&'static str, &'static [Edit], Edit, Edit, [bool; 2]);

const ROWS: &[Row] = &[
    ("nothing", &[], PLAIN, PLAIN, [false, false]),
    ("it is excluded", &[], PLAIN, OUT, [true, true]),
    ("it is excluded no more", &[], OUT, BACK, [true, true]),
    (
        "it is excluded by another value",
        &[],
        OUT,
        OUT_TOO,
        [false, false],
    ),
    ("another taint comes", &[], PLAIN, TAINTED, [false, false]),
    ("another taint goes", &[], TAINTED, PLAIN, [false, false]),
    ("another label comes", &[], PLAIN, LABELLED, [false, false]),
    ("another label goes", &[], LABELLED, PLAIN, [false, false]),
    (
        "not ready, still",
        &[],
        NOT_READY,
        NOT_READY,
        [false, false],
    ),
    (
        "not ready, then unknown",
        &[],
        NOT_READY,
        PLAIN,
        [false, false],
    ),
    (
        "unknown, then not ready",
        &[],
        PLAIN,
        NOT_READY,
        [false, false],
    ),
    ("ready, then not", &[], READY, NOT_READY, [false, false]),
    (
        "not ready, then ready",
        &[],
        NOT_READY,
        READY,
        [false, false],
    ),
    (
        "not ready, another condition comes",
        &[NOT_READY],
        PLAIN,
        FULL,
        [false, false],
    ),
    (
        "not ready, another condition goes",
        &[NOT_READY],
        FULL,
        PLAIN,
        [false, false],
    ),
    (
        "ready, another condition comes",
        &[READY],
        PLAIN,
        FULL,
        [false, false],
    ),
    (
        "ready, another condition goes",
        &[READY],
        FULL,
        PLAIN,
        [false, false],
    ),
    ("it is being deleted", &[], PLAIN, GOING, [true, true]),
    ("it gets its provider ID", &[], NO_ID, PLAIN, [true, true]),
    ("it loses its provider ID", &[], PLAIN, NO_ID, [true, true]),
    (
        "it has another provider ID",
        &[],
        PLAIN,
        OTHER_ID,
        [true, true],
    ),
    (
        "▲S7: the autoscaler takes it away",
        &[],
        PLAIN,
        LEAVING,
        [true, true],
    ),
    (
        "▲S7: the autoscaler leaves it after all",
        &[],
        LEAVING,
        PLAIN,
        [true, true],
    ),
    (
        "▲S12: leaving, it is excluded",
        &[LEAVING],
        PLAIN,
        OUT,
        [false, false],
    ),
    (
        "▲S12: leaving, it is excluded no more",
        &[LEAVING],
        OUT,
        BACK,
        [false, false],
    ),
    (
        "▲S12: leaving, it gets its provider ID",
        &[LEAVING],
        NO_ID,
        PLAIN,
        [false, false],
    ),
    (
        "▲S12: leaving, it has another provider ID",
        &[LEAVING],
        PLAIN,
        OTHER_ID,
        [false, false],
    ),
    (
        "leaving, it is ready",
        &[LEAVING],
        NOT_READY,
        READY,
        [false, false],
    ),
    (
        "leaving, it is not ready",
        &[LEAVING],
        READY,
        NOT_READY,
        [false, false],
    ),
    (
        "excluded, the autoscaler takes it away",
        &[OUT],
        PLAIN,
        LEAVING,
        [false, false],
    ),
    (
        "excluded, the autoscaler leaves it",
        &[OUT],
        LEAVING,
        PLAIN,
        [false, false],
    ),
    (
        "excluded, it is ready",
        &[OUT],
        NOT_READY,
        READY,
        [false, false],
    ),
    (
        "▲S12: excluded, it gets its provider ID",
        &[OUT],
        NO_ID,
        PLAIN,
        [false, false],
    ),
    (
        "▲S12: excluded, it has another provider ID",
        &[OUT],
        PLAIN,
        OTHER_ID,
        [false, false],
    ),
    (
        "not ready, the autoscaler takes it away",
        &[NOT_READY],
        PLAIN,
        LEAVING,
        [true, true],
    ),
    (
        "not ready, the autoscaler leaves it",
        &[NOT_READY],
        LEAVING,
        PLAIN,
        [true, true],
    ),
    (
        "not ready, it is excluded",
        &[NOT_READY],
        PLAIN,
        OUT,
        [true, true],
    ),
    (
        "not ready, it is excluded no more",
        &[NOT_READY],
        OUT,
        BACK,
        [true, true],
    ),
    (
        "not ready, it gets its provider ID",
        &[NOT_READY],
        NO_ID,
        PLAIN,
        [true, true],
    ),
    (
        "not ready, it has another provider ID",
        &[NOT_READY],
        PLAIN,
        OTHER_ID,
        [true, true],
    ),
    (
        "▲S14: without a provider ID, it is excluded",
        &[NO_ID],
        PLAIN,
        OUT,
        [false, true],
    ),
    (
        "▲S14: without a provider ID, it is ready",
        &[NO_ID],
        NOT_READY,
        READY,
        [false, false],
    ),
    (
        "▲S14: without a provider ID, the autoscaler leaves it",
        &[NO_ID],
        LEAVING,
        PLAIN,
        [false, true],
    ),
];

/// How a change of one Node affects the set. Upstream reacts to the same changes, with these
/// exceptions: rows with `▲S7`, `▲S12` or `▲S14`, the start of a Node's deletion, and the
/// autoscaler's taint on a Node that is not ready.
#[test]
fn b_s7_s7_s12_s14_which_changes_of_a_node_make_another_set() {
    use api::TargetScope::{All, Owned};
    for (name, always, before, after, expected) in ROWS {
        for (scope, expected) in [Owned, All].into_iter().zip(*expected) {
            let set = |edit: Edit| {
                let mut changed = node("a");
                for edit in *always {
                    edit(&mut changed);
                }
                edit(&mut changed);
                let mut candidates = Candidates::default();
                observe(&mut candidates, node("b"));
                if eligible(&changed, scope, true) {
                    observe(&mut candidates, changed);
                }
                candidates.select(&NodeSelector::default()).fingerprint
            };
            assert_eq!(set(*before) != set(*after), expected, "{name}, {scope:?}");
        }
    }
}
