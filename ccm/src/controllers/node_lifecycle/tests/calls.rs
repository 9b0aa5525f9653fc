//! How often the ccm asks the provider (▲L1).

use super::*;

#[tokio::test(start_paused = true)]
async fn l1_a_node_about_which_nothing_changes_is_asked_about_less_often() {
    let looping = Looping::start(20).await;
    looping.down([3, 4], api::InstanceState::Running);
    let in_the_next = async |time: Duration| {
        let before = looping.lookups();
        tokio::time::sleep(time).await;
        looping.lookups() - before
    };
    // At first the ccm asks each period, like upstream.
    let minute = in_the_next(Duration::from_mins(1)).await;
    assert!((11..=12).contains(&minute), "{minute}");
    tokio::time::sleep(Duration::from_mins(9)).await;
    let hour = in_the_next(Duration::from_hours(1)).await;
    assert_eq!(hour, 120);
    // After a hint the ccm asks at once, and about that Node only.
    tokio::time::sleep(SOON).await;
    let before = looping.lookups();
    let _ = looping.context.hints.send(Hint::Instance {
        provider_id: String::new(),
        node_name: "n0004".to_owned(),
    });
    let took = looping.until("asked", |this| this.lookups() > before).await;
    assert!(took <= Duration::from_millis(200), "{took:?}");
    assert_eq!(looping.cloud.state().lookups[before], ["n0004"]);
    // After a change of the Ready condition the ccm asks with the next pass.
    tokio::time::sleep(Duration::from_mins(5)).await;
    looping.api.edit("n0003", |old| {
        old.status = node(3, "False").status;
    });
    let before = looping.lookups();
    tokio::time::sleep(PERIOD + SOON).await;
    let lookups = looping.cloud.state().lookups.clone();
    let about = lookups[before..].iter().flatten();
    assert!(about.clone().any(|name| name == "n0003"), "{lookups:?}");
    // The ccm sees a stopped or absent instance at most half a minute later than upstream. The
    // second answer takes one more period.
    let state = |node: &str, state| {
        let states = &mut looping.cloud.state().states;
        states.insert(node.to_owned(), state);
    };
    tokio::time::sleep(Duration::from_mins(20)).await;
    state("n0003", api::InstanceState::Stopped);
    let tainted = |this: &Looping| {
        let spec = this.api.node("n0003").unwrap().spec.unwrap();
        spec.taints.is_some_and(|taints| !taints.is_empty())
    };
    let took = looping.until("tainted", tainted).await;
    assert!(took <= 6 * PERIOD + SOON, "{took:?}");
    state("n0004", api::InstanceState::Absent);
    let took = looping.until("deleted", |this| this.left() == 19).await;
    assert!(took <= 7 * PERIOD + SOON, "{took:?}");
}

/// The reads that a cloud without batches needs, compared with upstream's. In each period upstream
/// asks about each Node that is not Ready: whether its instance exists and, if so, whether it is
/// shut down.
#[tokio::test(start_paused = true)]
async fn l1_calls_by_situation() {
    use api::InstanceState::{Absent, Running, Stopped};
    struct Situation {
        what: &'static str,
        down: usize,
        state: api::InstanceState,
        lasts: Duration,
        upstream: usize,
        ours: usize,
    }
    let each = |down: usize, lasts: Duration| {
        let periods = lasts.as_secs() / PERIOD.as_secs();
        2 * down * usize::try_from(periods).unwrap()
    };
    let (ten, hour) = (Duration::from_secs(10), Duration::from_hours(1));
    let minute = Duration::from_mins(1);
    let situations = [
        Situation {
            what: "nothing happens for an hour",
            down: 0,
            state: Running,
            lasts: hour,
            upstream: 0,
            ours: 0,
        },
        Situation {
            what: "a Node is not Ready for ten seconds",
            down: 1,
            state: Running,
            lasts: ten,
            upstream: each(1, ten),
            ours: each(1, ten),
        },
        Situation {
            what: "three Nodes are not Ready for a minute",
            down: 3,
            state: Running,
            lasts: minute,
            upstream: each(3, minute),
            ours: each(3, minute),
        },
        Situation {
            what: "a Node is not Ready for an hour",
            down: 1,
            state: Running,
            lasts: hour,
            upstream: each(1, hour),
            ours: 290,
        },
        Situation {
            what: "a machine is shut down for ten seconds: the taint",
            down: 1,
            state: Stopped,
            lasts: ten,
            upstream: each(1, ten),
            ours: each(1, ten),
        },
        // ▲L6: two answers, and a Ready Node vouches for the provider with each of them.
        Situation {
            what: "an instance is gone: the Node is deleted",
            down: 1,
            state: Absent,
            lasts: minute,
            upstream: 1,
            ours: 4,
        },
        Situation {
            what: "two instances are gone: the Nodes are deleted",
            down: 2,
            state: Absent,
            lasts: minute,
            upstream: 2,
            ours: 8,
        },
        // ▲L6: the brake holds; upstream deletes them all at once.
        Situation {
            what: "ten instances of twenty are gone, for ten minutes",
            down: 10,
            state: Absent,
            lasts: minute * 10,
            upstream: 10,
            ours: 160,
        },
    ];
    for situation in situations {
        let looping = Looping::start(20).await;
        // Just after a pass.
        tokio::time::sleep(Duration::from_millis(10)).await;
        looping.down(0..situation.down, situation.state);
        tokio::time::sleep(situation.lasts + SOON).await;
        let reads = looping.cloud.state().reads;
        let (what, upstream) = (situation.what, situation.upstream);
        println!("{what}: {reads}, upstream {upstream}");
        assert!(reads <= situation.ours, "{what}: {reads}");
        let safety = situation.state == Absent;
        assert!(safety || reads <= upstream, "{what}: {reads}");
        assert!(situation.down == 0 || reads > 0, "{}", situation.what);
    }
}
