//! Faults and their results.

use provider_mock::{Fault, FaultKind};
use provider_sdk::FailureCode;

use super::*;
use crate::provider::testing::SCOPE_KEY;

impl Bench {
    fn fails(&self, code: FailureCode, times: u32) {
        let fault = Fault::failure(GET, code).times(times);
        self.cloud.set_fault(fault).unwrap();
    }
}

/// Fault: the provider answers with each code of the error table except NOT_FOUND | asks about the
/// volume again after the time in the contract's table; a Warning event reports it if the table has
/// one; writes the volume once
#[tokio::test(start_paused = true)]
async fn fault_volume_each_failure_is_retried_as_the_contract_says() {
    use FailureCode as C;
    for (code, least, most, events) in [
        (C::Invalid, 1_800, 1_801, 1),
        (C::Precondition, 0, 2, 1),
        // GetVolumeLabels does not list CONFLICT, so the ccm reads it as INTERNAL.
        (C::Conflict, 0, 2, 1),
        (C::Busy, 1, 2, 0),
        (C::Throttled, 1, 10, 1),
        // One event for all volumes.
        (C::Credentials, 20, 21, 1),
        (C::Unavailable, 0, 2, 1),
        (C::NotInitialized, 0, 10, 0),
        (C::Internal, 0, 2, 1),
    ] {
        let bench = Bench::new().await;
        bench.fails(code, 1);
        let started = Instant::now();
        bench.api.put(disk("pv", "d-1"));
        bench.labelled("pv").await;
        let took = started.elapsed().as_secs();
        assert!(
            (least..=most).contains(&took),
            "asks about the volume again after the time in the contract's table: {code:?}: {took} s"
        );
        assert_eq!(
            bench.reported("Warning VolumeLabelsFailed"),
            events,
            "a Warning event reports it if the table has one: {code:?}"
        );
        assert_eq!(
            (bench.calls(), bench.api.patches().len()),
            (2, 1),
            "writes the volume once: {code:?}"
        );
    }
}

/// Fault: the provider names a zone that no label can hold, or an empty one | writes nothing; a
/// Warning event says so; asks again with backoff
#[tokio::test(start_paused = true)]
async fn fault_volume_a_zone_that_is_none_is_no_answer() {
    for wrong in ["", "a b"] {
        let bench = Bench::new().await;
        let answers = |zone: &str| {
            let labels = BTreeMap::from([(ZONE.to_owned(), zone.to_owned())]);
            let change = |cloud: &mut Fixture| drop(cloud.volumes.insert("d-1".to_owned(), labels));
            bench.cloud.change_settings(change).unwrap();
        };
        answers(wrong);
        bench.api.put(disk("pv", "d-1"));
        sleep(Duration::from_secs(30)).await;
        let written = bench.api.patches().len();
        assert_eq!(written, 0, "writes nothing: {wrong:?}");
        assert!(
            bench.reported("Warning VolumeLabelsFailed") > 0,
            "a Warning event says so: {wrong:?}"
        );
        let calls = bench.calls();
        assert!(
            (4..=6).contains(&calls),
            "asks again with backoff: {wrong:?}: {calls}"
        );
        answers("a");
        bench.labelled("pv").await;
    }
}

/// Fault: the cloud refuses the credentials for many volumes | one event, not one per volume; asks
/// about one again after 20 s, and about the others as soon as the provider answers for it; asks
/// about each once more
#[tokio::test(start_paused = true)]
async fn fault_volume_refused_credentials_are_told_once() {
    let bench = Bench::new().await;
    bench.fails(FailureCode::Credentials, 3);
    for number in 1..=3 {
        bench
            .api
            .put(disk(&format!("pv-{number}"), &format!("d-{number}")));
    }
    let started = Instant::now();
    for number in 1..=3 {
        bench.labelled(&format!("pv-{number}")).await;
    }
    let took = started.elapsed().as_secs();
    assert!(
        (20..22).contains(&took),
        "asks about one again after 20 s, and about the others as soon as the provider answers for it: {took} s"
    );
    assert_eq!(bench.calls(), 6, "asks about each once more");
    let reported = bench.reported("VolumeLabelsFailed");
    assert_eq!(reported, 1, "one event, not one per volume");
}

/// Fault: a volume is BUSY again and again | asks again quickly, five times; the sixth time an
/// event reports it
#[tokio::test(start_paused = true)]
async fn fault_volume_busy_five_times_then_backoff() {
    let bench = Bench::new().await;
    bench.fails(FailureCode::Busy, 6);
    let started = Instant::now();
    bench.api.put(disk("pv", "d-1"));
    bench.labelled("pv").await;
    let took = started.elapsed();
    assert!(
        took < Duration::from_secs(10),
        "asks again quickly, five times: {took:?}"
    );
    let reported = bench.reported("VolumeLabelsFailed");
    assert_eq!(reported, 1, "the sixth time an event reports it");
}

/// Fault: the cloud has no such disk (NOT_FOUND) | asks about it once; one Warning event reports
/// it; does not ask again when the provider comes back; another leader asks about it once more
#[tokio::test(start_paused = true)]
async fn fault_volume_a_missing_disk_is_left_alone() {
    let mut bench = Bench::new().await;
    bench.api.put(disk("pv", "nowhere"));
    sleep(Duration::from_hours(3)).await;
    let seen = (bench.calls(), bench.api.patches().len());
    assert_eq!(seen, (1, 0), "asks about it once");
    let reported = bench.reported("Warning VolumeNotFound");
    assert_eq!(reported, 1, "one Warning event reports it");
    // The new process knows the same disks.
    bench.start_provider().await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(
        bench.calls(),
        1,
        "does not ask again when the provider comes back"
    );
    bench.restart().await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.calls(), 2, "another leader asks about it once more");
}

/// Fault: the provider does not answer for one volume | the others go on; asks about that one again
/// after the deadline (1 min); an event reports it
#[tokio::test(start_paused = true)]
async fn fault_volume_a_hang_stops_nobody_else() {
    let bench = Bench::new().await;
    let hang = Fault::new(GET, FaultKind::Hang).subject("stuck").times(1);
    bench.cloud.set_fault(hang).unwrap();
    let started = Instant::now();
    bench.api.put(disk("stuck", "d-1"));
    bench.api.put(disk("pv", "d-2"));
    bench.labelled("pv").await;
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "the others go on"
    );
    bench.labelled("stuck").await;
    let took = started.elapsed();
    assert!(
        (Duration::from_mins(1)..Duration::from_secs(65)).contains(&took),
        "asks about that one again after the deadline (1 min): {took:?}"
    );
    let reported = bench.reported("VolumeLabelsFailed");
    assert_eq!(reported, 1, "an event reports it");
}

/// Fault: the provider answers for a volume after the deadline of the call | does not use the late
/// answer; an event reports it; asks again; writes the volume once
#[tokio::test(start_paused = true)]
async fn fault_volume_an_answer_after_the_deadline_is_not_heard() {
    let bench = Bench::new().await;
    let slow = Duration::from_secs(70);
    bench.cloud.set_latency(GET, slow).unwrap();
    bench.api.put(disk("pv", "d-1"));
    // The deadline is a minute.
    sleep(Duration::from_secs(75)).await;
    assert_eq!(bench.api.patches().len(), 0, "does not use the late answer");
    let reported = bench.reported("VolumeLabelsFailed");
    assert_eq!(reported, 1, "an event reports it");
    bench.cloud.set_latency(GET, Duration::ZERO).unwrap();
    bench.labelled("pv").await;
    assert_eq!(bench.api.patches().len(), 1, "writes the volume once");
    assert!(bench.calls() >= 2, "asks again");
}

/// Fault: the watch of PersistentVolumes is cut, or answered with 410 Gone, while volumes are
/// created, deleted and created again | asks and writes nothing until it lists again; labels new
/// volumes, also under the name of a deleted one; asks about no other volume; records no event
#[tokio::test(start_paused = true)]
async fn fault_volume_the_watch_is_cut() {
    let bench = Bench::new().await;
    for (name, disk_name) in [("stays", "d-1"), ("anew", "d-2"), ("goes", "d-3")] {
        bench.api.put(disk(name, disk_name));
        bench.labelled(name).await;
    }
    bench.api.cut_watch();
    bench.api.delete("goes");
    bench.api.delete("anew");
    bench.api.put(disk("anew", "d-3"));
    bench.api.put(disk("came", "d-2"));
    sleep(Duration::from_mins(1)).await;
    let seen = |bench: &Bench| (bench.calls(), bench.api.patches().len());
    assert_eq!(
        seen(&bench),
        (3, 3),
        "asks and writes nothing until it lists again"
    );
    bench.api.list_again();
    for name in ["anew", "came"] {
        let volume = bench.labelled(name).await;
        assert_eq!(
            label(&volume, ZONE),
            Some("a"),
            "labels new volumes, also under the name of a deleted one: {name}"
        );
    }
    sleep(Duration::from_mins(1)).await;
    assert_eq!(seen(&bench), (5, 5), "asks about no other volume");
    let events = bench.events.recorded();
    assert_eq!(events, Vec::<String>::new(), "records no event");
}

/// Fault: the answer has no outcome, no content, cannot be decoded, is larger than 1 MiB, or is a
/// gRPC status | does not use the answer and asks again; writes the volume once
#[tokio::test(start_paused = true)]
async fn fault_volume_an_answer_that_is_none_changes_nothing() {
    for kind in [
        FaultKind::UnsetOutcome,
        FaultKind::EmptyAnswer,
        FaultKind::NoAnswer,
        FaultKind::Garbage,
        FaultKind::Oversized,
        FaultKind::Status,
        FaultKind::StatusAfter,
    ] {
        let bench = Bench::new().await;
        bench
            .cloud
            .set_fault(Fault::new(GET, kind).times(2))
            .unwrap();
        bench.api.put(disk("pv", "d-1"));
        bench.labelled("pv").await;
        assert_eq!(
            bench.calls(),
            3,
            "does not use the answer and asks again: {kind:?}"
        );
        let written = bench.api.patches().len();
        assert_eq!(written, 1, "writes the volume once: {kind:?}");
    }
}

/// Fault: the provider dies during a call, before or after its lookup | asks nothing while the
/// provider is away; labels the volume within a second of the provider's return; records no event
#[tokio::test(start_paused = true)]
async fn fault_volume_a_provider_that_dies_is_waited_for() {
    for kind in [FaultKind::Crash, FaultKind::CrashAfter] {
        let bench = Bench::new().await;
        bench
            .cloud
            .set_fault(Fault::new(GET, kind).times(1))
            .unwrap();
        bench.api.put(disk("pv", "d-1"));
        let mut status = bench.running.status.clone();
        status
            .wait_for(|status| status.session.is_none())
            .await
            .unwrap();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(bench.calls(), 1, "asks nothing while the provider is away");
        bench.start_provider().await;
        bench.running.session().await;
        let back = Instant::now();
        bench.labelled("pv").await;
        assert!(
            back.elapsed() < Duration::from_secs(1),
            "labels the volume within a second of the provider's return: {kind:?}"
        );
        let events = bench.events.recorded();
        assert_eq!(bench.reported("Volume"), 0, "records no event: {events:?}");
    }
}

/// Fault: the provider's credentials reach another account, project or region than before | asks
/// about no volume until an operator accepts the scope; then labels it
#[tokio::test(start_paused = true)]
async fn fault_volume_another_cloud_scope_labels_nothing() {
    let bench = Bench::not_leading().await;
    let elsewhere = BTreeMap::from([(SCOPE_KEY.to_owned(), "another account".to_owned())]);
    bench.running.annotations.send_replace(elsewhere);
    bench.running.lead();
    bench.running.session().await;
    bench.api.put(disk("pv", "d-1"));
    sleep(Duration::from_mins(5)).await;
    assert_eq!(
        bench.calls(),
        0,
        "asks about no volume until an operator accepts the scope"
    );
    let scope = bench.running.status.borrow().cloud_scope.clone().unwrap();
    let accepted = BTreeMap::from([(SCOPE_KEY.to_owned(), scope)]);
    bench.running.annotations.send_replace(accepted);
    let volume = bench.labelled("pv").await;
    assert_eq!(label(&volume, ZONE), Some("a"), "then labels it");
}

/// Fault: the API server answers the patch with 409, 429, 500 or 503 | sends the patch once more;
/// records no event
#[tokio::test(start_paused = true)]
async fn fault_volume_a_patch_that_did_not_happen_is_repeated() {
    for code in [409, 429, 500, 503] {
        let bench = Bench::new().await;
        bench.api.answer_next_patch(code);
        bench.api.put(disk("pv", "d-1"));
        bench.labelled("pv").await;
        let sent = bench.api.patches().len();
        assert_eq!(sent, 2, "sends the patch once more: {code}");
        let events = bench.events.recorded();
        assert_eq!(events, Vec::<String>::new(), "records no event: {code}");
    }
}

/// Fault: the API server refuses the patch (403: a missing right; 422: a policy) | a Warning event
/// reports it; tries again after 30 min
#[tokio::test(start_paused = true)]
async fn fault_volume_a_refused_patch_is_told_and_tried_slowly() {
    for code in [403, 422] {
        let bench = Bench::new().await;
        bench.api.answer_next_patch(code);
        let started = Instant::now();
        bench.api.put(disk("pv", "d-1"));
        bench.labelled("pv").await;
        let took = started.elapsed();
        assert!(
            (Duration::from_mins(30)..Duration::from_mins(31)).contains(&took),
            "tries again after 30 min: {code}: {took:?}"
        );
        let reported = bench.reported("Warning VolumeWriteRefused");
        assert_eq!(reported, 1, "a Warning event reports it: {code}");
        assert_eq!(bench.api.patches().len(), 2, "{code}");
    }
}

/// Fault: the volume is deleted before the ccm writes it | does nothing more; records no event
#[tokio::test(start_paused = true)]
async fn fault_volume_one_that_is_gone_meanwhile_is_forgotten() {
    let bench = Bench::new().await;
    bench.api.put(disk("pv", "d-1"));
    bench.api.gone_before_next_patch("pv");
    sleep(Duration::from_hours(1)).await;
    let seen = (bench.calls(), bench.api.patches().len());
    assert_eq!(seen, (1, 1), "does nothing more");
    let events = bench.events.recorded();
    assert_eq!(events, Vec::<String>::new(), "records no event");
}

/// Fault: the ccm dies during a call, or before its write | the next leader asks once more; it
/// writes once; a leader that finds the volume labelled does nothing
#[tokio::test(start_paused = true)]
async fn fault_volume_a_ccm_that_dies_leaves_nothing_half_done() {
    let mut bench = Bench::new().await;
    bench
        .cloud
        .set_latency(GET, Duration::from_secs(30))
        .unwrap();
    bench.api.put(disk("pv", "d-1"));
    sleep(Duration::from_secs(1)).await;
    bench.loop_.abort();
    sleep(Duration::from_mins(5)).await;
    assert_eq!(bench.api.patches().len(), 0);
    bench.loop_ = start(&bench.api, &bench.running, &bench.events, &bench.stop);
    bench.labelled("pv").await;
    assert_eq!(bench.calls(), 2, "the next leader asks once more");
    assert_eq!(bench.api.patches().len(), 1, "it writes once");
    // As after a patch whose answer was lost: the next leader finds the volume done.
    bench.loop_.abort();
    bench.loop_ = start(&bench.api, &bench.running, &bench.events, &bench.stop);
    sleep(Duration::from_mins(5)).await;
    let seen = (bench.calls(), bench.api.patches().len());
    assert_eq!(
        seen,
        (2, 1),
        "a leader that finds the volume labelled does nothing"
    );
}

/// Fault: the provider comes back and offers no volumes | asks nothing and records no event; asks a
/// provider that offers them again about the new volumes; asks a provider that declares another
/// source about that source's volumes too
#[tokio::test(start_paused = true)]
async fn fault_volume_a_capability_that_is_gone_is_not_used() {
    let bench = Bench::new().await;
    let offer = async |offered| {
        bench
            .cloud
            .change_settings(|cloud| cloud.capabilities.volumes.offered = offered)
            .unwrap();
        bench.start_provider().await;
        let mut status = bench.running.status.clone();
        let seen = status.wait_for(|status| {
            let session = status.working();
            session.is_some_and(|session| session.offers(|all| all.volumes.is_some()) == offered)
        });
        drop(seen.await.unwrap());
    };
    offer(false).await;
    bench.api.put(disk("pv", "d-1"));
    sleep(Duration::from_hours(1)).await;
    let seen = (bench.calls(), bench.reported("Volume"));
    assert_eq!(seen, (0, 0), "asks nothing and records no event");
    offer(true).await;
    let volume = bench.labelled("pv").await;
    assert_eq!(
        label(&volume, ZONE),
        Some("a"),
        "asks a provider that offers them again about the new volumes"
    );

    // The provider declares another source as its own: volumes that were left alone are checked.
    let mut other = disk("other", "d-2");
    other["spec"]["csi"]["driver"] = "disk.example.org".into();
    bench.api.put(other);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.calls(), 1);
    let own = &mut vec!["csi/disk.example.org".to_owned()];
    bench
        .cloud
        .change_settings(|cloud| cloud.capabilities.volumes.source_types.append(own))
        .unwrap();
    bench.start_provider().await;
    let volume = bench.labelled("other").await;
    assert_eq!(
        label(&volume, ZONE),
        Some("a"),
        "asks a provider that declares another source about that source's volumes too"
    );
}
