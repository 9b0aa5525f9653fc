use super::*;
use crate::core::wall_time;

fn answered(words: &str) -> Answered {
    Answered {
        kind: EventType::Warning,
        reason: "Failed",
        words: words.to_owned(),
        code: Some("PRECONDITION"),
        rpc: Some("EnsureLoadBalancer"),
        call_id: None,
    }
}

fn overdue(
    waiting: &mut Waiting<&'static str>,
    now: Instant,
    otherwise: &str,
) -> Vec<&'static str> {
    let obstacle = |_: &&str, answered: Option<&Answered>| {
        let stays = answered.is_none() && !otherwise.is_empty();
        stays.then(|| Obstacle::new(otherwise.to_owned(), None))
    };
    let overdue = waiting.overdue(now, PATIENCE, obstacle).into_iter();
    overdue.map(|overdue| overdue.key).collect()
}

#[test]
fn n13_who_waits_for_half_a_minute_is_told_why() {
    let mut waiting = Waiting::default();
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    waiting.seen(&"a", Some("1"), None, start);
    waiting.seen(&"b", Some("2"), None, at(20));
    assert!(!waiting.answered(&"a", &answered("quota"), false, at(1)));
    assert!(!waiting.answered(&"nobody", &answered("quota"), false, at(1)));
    assert_eq!(overdue(&mut waiting, at(29), ""), [""; 0]);
    assert_eq!(overdue(&mut waiting, at(35), ""), ["a"]);
    assert_eq!(overdue(&mut waiting, at(49), ""), [""; 0]);
    assert_eq!(overdue(&mut waiting, at(50), "away"), ["b"]);
    // A new obstacle is reported, but only after `PATIENCE`.
    assert_eq!(overdue(&mut waiting, at(60), "scope"), [""; 0]);
    assert_eq!(overdue(&mut waiting, at(81), "scope"), ["b"]);
    assert_eq!(overdue(&mut waiting, at(200), "scope"), [""; 0]);
    waiting.gone(&"b");
    assert_eq!(overdue(&mut waiting, at(934), ""), [""; 0]);
    assert_eq!(overdue(&mut waiting, at(935), ""), ["a"]);
    // An object made again under the same name has its own time.
    waiting.seen(&"a", Some("3"), None, at(950));
    assert_eq!(waiting.attempts(&"a"), 0);
    assert_eq!(overdue(&mut waiting, at(960), ""), [""; 0]);
    waiting.seen(&"a", Some("3"), None, at(970));
    assert_eq!(overdue(&mut waiting, at(980), ""), ["a"]);
    waiting.keep(|_| false);
    assert_eq!(overdue(&mut waiting, at(9_999), ""), [""; 0]);
}

#[test]
fn n13_while_the_provider_is_away_nobody_waits_to_be_told() {
    let (start, away) = (Instant::now(), ProviderStatus::default());
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut since = Away::default();
    assert_eq!(since.patience(&away, at(0)), PATIENCE);
    assert_eq!(since.patience(&away, at(9)), PATIENCE);
    let patience = since.patience(&away, at(10));
    assert_eq!(patience, Duration::ZERO);
    let mut waiting = Waiting::default();
    waiting.seen(&"a", None, None, at(10));
    let reported = |waiting: &mut Waiting<&'static str>, now, state: &str| {
        let obstacle = |_: &&str, _: Option<&Answered>| Some(Obstacle::new(state.to_owned(), None));
        waiting.overdue(now, patience, obstacle).len()
    };
    assert_eq!(reported(&mut waiting, at(10), "away"), 1);
    // The same state is not reported twice.
    assert_eq!(reported(&mut waiting, at(15), "away"), 0);
    assert_eq!(reported(&mut waiting, at(15), "otherwise away"), 0);
    assert_eq!(reported(&mut waiting, at(41), "otherwise away"), 1);
}

#[test]
fn n13_what_was_told_once_is_told_at_each_attempt() {
    let mut waiting = Waiting::default();
    let now = Instant::now();
    waiting.seen(&"a", None, None, now);
    assert!(!waiting.answered(&"a", &answered("down"), false, now));
    assert!(waiting.answered(&"a", &answered("no subnet"), true, now));
    assert!(waiting.answered(&"a", &answered("down"), false, now));
    assert_eq!(waiting.attempts(&"a"), 3);
    assert!(waiting.answered(&"nobody", &answered("no subnet"), true, now));
}

#[test]
fn n13_the_age_of_the_oldest() {
    let mut waiting = Waiting::default();
    let now = Instant::now();
    let second = |second| Timestamp::from_second(second).unwrap();
    assert_eq!(waiting.oldest(second(100)), Duration::ZERO);
    waiting.seen(&"a", None, Some(second(90)), now);
    waiting.seen(&"b", None, Some(second(40)), now);
    assert_eq!(waiting.oldest(second(100)), Duration::from_mins(1));
    assert_eq!(waiting.oldest(second(1)), Duration::ZERO);
}

#[test]
fn what_is_told_says_who_answered_what_and_when_it_goes_on() {
    let wall = Timestamp::from_second(1_000_000).unwrap();
    let now = Instant::now();
    let at = wall_time(now + Duration::from_millis(4_200), now, wall);
    let text = reported(&answered("no subnet"), "mock", None, 3, Some(Next::At(at)));
    assert_eq!(
        text,
        "no subnet (PRECONDITION from EnsureLoadBalancer of provider mock, attempt 3, next try at 1970-01-12T13:46:45Z)"
    );
    let text = reported(&answered("no"), "mock", Some("the name \"a\""), 3, None);
    assert_eq!(
        text,
        "no (PRECONDITION from EnsureLoadBalancer of provider mock for the name \"a\", attempt 3)"
    );
    let refused = Answered {
        code: None,
        rpc: None,
        call_id: None,
        ..answered("no")
    };
    assert_eq!(
        reported(&refused, "mock", None, 1, Some(Next::WhenBack)),
        "no (attempt 1, next try as soon as the provider is available)"
    );
    assert_eq!(reported(&refused, "mock", Some("anything"), 0, None), "no");
    // The provider's words may be as long as an event; the rest of the message stays complete.
    let long = "ü".repeat(1_000);
    let text = reported(
        &answered(&long),
        "mock",
        None,
        3,
        Some(Next::WhenChangedOr(at)),
    );
    assert!(
        text.len() <= MESSAGE_BYTES && text.len() > MESSAGE_BYTES - 4,
        "{}",
        text.len()
    );
    assert!(
        text.ends_with(
            "…, next try when the object changes, at the latest at 1970-01-12T13:46:45Z)"
        ) || text.contains("… (PRECONDITION from"),
        "{text}"
    );
}
