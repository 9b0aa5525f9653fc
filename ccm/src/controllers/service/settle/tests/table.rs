//! Compares the table at the head of `settle.rs` with the code: each row on many records.

use std::collections::BTreeSet;

use super::*;

/// The cells of a row.
type Row = [String; 7];

fn rows() -> Vec<Row> {
    let head = include_str!("../../settle.rs").lines();
    let lines = head.filter_map(|line| line.strip_prefix("//! | "));
    let rows = lines.map(|line| {
        let cells = line.trim_end_matches('|').split(" | ");
        let cells: Vec<String> = cells.map(|cell| cell.trim().to_owned()).collect();
        Row::try_from(cells).unwrap_or_else(|cells| panic!("seven cells: {cells:?}"))
    });
    // The first row has the column names.
    rows.skip(1).collect()
}

/// The name of an answer in the table. The compiler asks for a name for a new kind of answer.
fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::InSync(_) => "in sync",
        Verdict::OutOfSync { exists: true, .. } => "not in sync",
        Verdict::OutOfSync { exists: false, .. } => "none of ours",
        Verdict::Ready(_, troubled) if troubled.is_empty() => "ready",
        Verdict::Ready(..) => "ready but for targets",
        Verdict::Updated(troubled) if troubled.is_empty() => "done",
        Verdict::Updated(_) => "done but for targets",
        Verdict::Missing => "missing",
        Verdict::Elsewhere => "elsewhere",
        Verdict::Gone { retained: false } => "gone",
        Verdict::Gone { retained: true } => "retained",
        Verdict::Orphaned => "orphaned",
        Verdict::Pending(..) => "pending",
        Verdict::Failed(trouble) if trouble.code == CallErrorCode::Invalid => "INVALID",
        Verdict::Failed(_) => "fails",
    }
}

fn theirs() -> Theirs {
    Theirs {
        foreign: false,
        name: "theirs".into(),
        addresses: Vec::new(),
    }
}

/// Verdicts of each kind that `answer` can produce for this call.
fn verdicts(op: Op) -> Vec<Verdict> {
    let troubled = || Troubled {
        nodes: vec!["a".into()],
        ..Troubled::default()
    };
    let failed = |code| Verdict::Failed(trouble(code, None));
    let found = |exists, theirs| Verdict::OutOfSync { exists, theirs };
    let mut all = vec![
        failed(CallErrorCode::Invalid),
        failed(CallErrorCode::Internal),
    ];
    if op != Op::Get {
        all.push(Verdict::Pending(secs(17), String::new()));
    }
    all.extend(match op {
        Op::Get => vec![
            Verdict::InSync(None),
            found(true, None),
            found(false, None),
            found(false, Some(theirs())),
        ],
        Op::Ensure => vec![
            ready(),
            Verdict::Ready(LoadBalancerStatus::default(), troubled()),
            Verdict::Elsewhere,
        ],
        Op::Update => vec![
            Verdict::Updated(Troubled::default()),
            Verdict::Updated(troubled()),
            Verdict::Missing,
            Verdict::Elsewhere,
        ],
        Op::Delete => vec![
            Verdict::Gone { retained: false },
            Verdict::Gone { retained: true },
            Verdict::Orphaned,
        ],
    });
    all
}

/// Records with each state of the cloud and each progress with which this call can be made.
fn records(op: Op) -> Vec<Record> {
    let other = Fingerprint(1);
    let clouds = [
        Cloud::Unknown,
        Cloud::MayStand { by: ME.into() },
        Cloud::MayStand { by: "other".into() },
        Cloud::Deleted,
        Cloud::Kept,
    ];
    // Update follows only on confirmed inputs.
    let mut progresses = vec![
        confirmed(Some(7)),
        confirmed(None),
        Progress::Pending {
            inputs: Some(inputs()),
        },
    ];
    if op != Op::Update {
        progresses.extend([
            Progress::UNCONFIRMED,
            Progress::Unconfirmed {
                theirs: Some(theirs()),
            },
            Progress::Pending { inputs: None },
            Progress::Rejected,
            Progress::Elsewhere { inputs: other },
        ]);
    }
    let mut all = Vec::new();
    for cloud in &clouds {
        for progress in &progresses {
            for (check, failures, deletes) in [
                (false, 0, false),
                (true, 0, true),
                (true, 3, false),
                (true, 3, true),
            ] {
                all.push(Record {
                    cloud: cloud.clone(),
                    progress: progress.clone(),
                    check,
                    failures,
                    deletes,
                    ..record()
                });
            }
        }
    }
    all
}

/// The record that a row predicts after `before`.
fn expected(row: &Row, before: &Record, op: Op, verdict: Option<&Verdict>) -> Record {
    let [_, _, cloud, progress, check, failures, _] = row;
    let mut record = before.clone();
    record.cloud = match cloud.as_str() {
        "as before" => before.cloud.clone(),
        "may stand" => Cloud::MayStand { by: ME.into() },
        "deleted" => Cloud::Deleted,
        "kept" => Cloud::Kept,
        other => panic!("cloud: {other}"),
    };
    let waits = |inputs| Progress::Pending { inputs };
    let theirs = match (verdict, &before.progress) {
        (Some(Verdict::OutOfSync { theirs, .. }), _) => theirs.clone(),
        (None, Progress::Unconfirmed { theirs }) if op == Op::Ensure => theirs.clone(),
        _ => None,
    };
    let unconfirmed = Progress::Unconfirmed { theirs };
    record.progress = match progress.as_str() {
        "as before" => before.progress.clone(),
        "as before, not pending" => match &before.progress {
            Progress::Unconfirmed { .. } | Progress::Pending { inputs: None } => unconfirmed,
            Progress::Pending { inputs: Some(_) } => confirmed(None),
            other => other.clone(),
        },
        "unconfirmed" => unconfirmed,
        "unconfirmed, or rejected as before" => match before.progress {
            Progress::Rejected => Progress::Rejected,
            _ => unconfirmed,
        },
        "confirmed" => confirmed(Some(7)),
        "confirmed but for targets" => confirmed(None),
        "pending" => waits(None),
        "pending, inputs confirmed" => waits(Some(inputs())),
        "rejected" => Progress::Rejected,
        "elsewhere" => Progress::Elsewhere { inputs: inputs() },
        other => panic!("progress: {other}"),
    };
    record.check = match check.as_str() {
        "as before" => before.check,
        "yes" => true,
        "no" => false,
        other => panic!("check: {other}"),
    };
    record.failures = match failures.as_str() {
        "as before" => before.failures,
        "one more" => before.failures + 1,
        "0" => 0,
        "as before after a Delete, else 0" => before.failures * u32::from(before.deletes),
        other => panic!("failures: {other}"),
    };
    record
}

fn requeue(row: &Row, now: Instant) -> Option<Requeue> {
    match row[6].as_str() {
        "at once" => None,
        "done" => Some(Requeue::Forget),
        "backoff" => Some(Requeue::Retry),
        "after its delay" => Some(Requeue::At(now + secs(17))),
        "when it changes" | "slowly" => Some(Requeue::At(now + secs(1800))),
        other => panic!("next: {other}"),
    }
}

fn facts(record: &Record) -> (Cloud, Progress, bool, u32) {
    let Record {
        cloud,
        progress,
        check,
        failures,
        ..
    } = record.clone();
    (cloud, progress, check, failures)
}

/// Shows B-S8, B-S9, B-S10, ▲S10, ▲S13, ▲S14 and ▲S18.
#[test]
fn the_table_is_what_begin_and_settle_do() {
    let rows = rows();
    let now = Instant::now();
    let (service, set) = (service(), set());
    let mut used = BTreeSet::new();
    let mut row = |op: Op, answer: &str| {
        let of = |row: &&Row| op.rpc().strip_suffix("LoadBalancer") == Some(&row[0]);
        let mut found = rows.iter().filter(of).filter(|row| row[1] == answer);
        let row = found
            .next()
            .unwrap_or_else(|| panic!("no row of {op:?}, {answer}"));
        assert!(found.next().is_none(), "two rows of {op:?}, {answer}");
        used.insert(row);
        row
    };
    for op in [Op::Get, Op::Ensure, Op::Update, Op::Delete] {
        let call = call(op, &service, &set);
        for record in records(op) {
            let is_sent = row(op, "is sent");
            assert_eq!(is_sent[6], "", "it is not over");
            let (sent, _) = begin(record.clone(), &call, &LoadBalancerCapability::default());
            let wanted = expected(is_sent, &record, op, None);
            assert_eq!(facts(&sent), facts(&wanted), "{op:?} of {record:?}");
            for verdict in verdicts(op) {
                let row = row(op, name(&verdict));
                let (settled, effects) = settle(sent.clone(), &call, &verdict, None, reaction, now);
                let wanted = expected(row, &sent, op, Some(&verdict));
                assert_eq!(facts(&settled), facts(&wanted), "{row:?} of {sent:?}");
                assert_eq!(effects.requeue, requeue(row, now), "{row:?} of {sent:?}");
            }
        }
    }
    let unused: Vec<&Row> = rows.iter().filter(|row| !used.contains(row)).collect();
    assert!(unused.is_empty(), "rows that no case uses: {unused:?}");
}
