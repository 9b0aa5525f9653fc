//! The panic of `eventually` if the condition does not hold in time.

use std::{cell::Cell, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt as _;
use testenv::eventually;

const SHORT: Duration = Duration::from_millis(100);

async fn panic_text(test: impl Future<Output = ()>) -> String {
    let panic = AssertUnwindSafe(test)
        .catch_unwind()
        .await
        .expect_err("it panics");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[tokio::test]
async fn it_gives_the_value_as_soon_as_there_is_one() {
    let looks = Cell::new(0);
    let value = eventually("three looks", Duration::from_secs(10), async || {
        looks.set(looks.get() + 1);
        (looks.get() == 3).then_some("there")
    })
    .await;
    assert_eq!((value, looks.get()), ("there", 3));
}

#[tokio::test]
async fn it_tells_what_where_and_why() {
    let looks = Cell::new(0);
    let text = panic_text(eventually("the moon is full", SHORT, async || {
        looks.set(looks.get() + 1);
        Err(format!("look {}", looks.get()))
    }))
    .await;
    assert!(
        text.starts_with("not within 100ms: the moon is full (at testenv/tests/eventually.rs:"),
        "{text}"
    );
    assert!(
        text.ends_with(&format!("last reason: look {}", looks.get())),
        "{text}"
    );
}

#[tokio::test]
async fn a_look_that_hangs_ends_too() {
    let text = panic_text(eventually("an answer", SHORT, async || {
        std::future::pending::<Option<()>>().await
    }))
    .await;
    assert!(text.contains("the last check took too long"), "{text}");
}
