//! An idle connection to the provider: the frames that it receives (CORE-1).

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::wire::{ACK, GOAWAY, PING, SETTINGS, Said, frame, hear, opening};

/// Longer than any run.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);

/// The most recorded events of one connection, enough to show how the provider behaves.
const NOTED: usize = 16;

/// A frame or event that an idle connection must not receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// A PING that requests an answer.
    Ping,
    /// GOAWAY.
    GoAway,
    /// The end of the connection.
    Closed,
}

/// A received event, and how long after the connection's start.
pub(crate) type Heard = (Told, Duration);

/// One idle connection. Dropping this closes it.
#[derive(Debug)]
struct Line {
    began: Instant,
    heard: Arc<Mutex<Vec<Heard>>>,
    task: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Line {
    fn on(mut stream: UnixStream) -> Self {
        let began = Instant::now();
        let heard = Arc::default();
        let notes: Arc<Mutex<Vec<Heard>>> = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            let note = |told| {
                let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
                if notes.len() < NOTED {
                    notes.push((told, began.elapsed()));
                }
            };
            // `hear` detects a closed connection.
            let _ = stream.write_all(&opening()).await;
            loop {
                let head = match hear(&mut stream, began + FOR_EVER).await {
                    Said::Frame(head) => head,
                    Said::End => return note(Told::Closed),
                    Said::Nothing => return,
                };
                match head.kind {
                    // A stack may give up a caller that never acknowledges this.
                    SETTINGS if head.flags & ACK == 0 => {
                        let mut answer = Vec::new();
                        frame(&mut answer, SETTINGS, ACK, 0, &[]);
                        let _ = stream.write_all(&answer).await;
                    }
                    PING if head.flags & ACK == 0 => note(Told::Ping),
                    GOAWAY => note(Told::GoAway),
                    _ => {}
                }
            }
        });
        Self { began, heard, task }
    }

    fn heard(&self) -> Vec<Heard> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }
}

/// Idle connections, one after the other: the suite opens one when the provider has begun to serve.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    line: Option<Line>,
    /// The events on connections that have ended.
    heard: Vec<Heard>,
    longest: Duration,
}

impl Idle {
    /// Opens an idle connection, because the provider has begun to serve here.
    pub(crate) async fn begin(&mut self, path: &Path) {
        if let Ok(stream) = UnixStream::connect(path).await {
            self.line = Some(Line::on(stream));
        }
    }

    /// Closes the connection, because the suite ends the provider's process now. Frames after this
    /// are no fault.
    pub(crate) fn end(&mut self) {
        if let Some(line) = self.line.take() {
            self.longest = self.longest.max(line.began.elapsed());
            self.heard.extend(line.heard());
        }
    }

    /// Closes the connection of a process that ended by itself. A check whose call failed because
    /// of that reports the end. Of the frames only PINGs count here, and the connection's time does
    /// not count.
    pub(crate) fn died(&mut self) {
        if let Some(line) = self.line.take() {
            let pings = line.heard().into_iter();
            self.heard
                .extend(pings.filter(|(told, _)| *told == Told::Ping));
        }
    }

    /// When the current connection began, if there is one.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.line.as_ref().map(|line| line.began)
    }

    /// The received events so far, and the longest time of a connection.
    pub(crate) fn heard(&self) -> (Vec<Heard>, Duration) {
        let mut heard = self.heard.clone();
        let mut longest = self.longest;
        if let Some(line) = &self.line {
            heard.extend(line.heard());
            longest = longest.max(line.began.elapsed());
        }
        (heard, longest)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn hears(frames: &[(u8, u8)], closes: bool, count: usize) -> Idle {
        let (near, mut far) = UnixStream::pair().unwrap();
        let idle = Idle {
            line: Some(Line::on(near)),
            ..Idle::default()
        };
        let mut bytes = Vec::new();
        for (kind, flags) in frames {
            frame(&mut bytes, *kind, *flags, 0, &[0; 8]);
        }
        far.write_all(&bytes).await.unwrap();
        if closes {
            far.shutdown().await.unwrap();
        } else {
            // The acknowledgement shows that everything before it was read.
            let mut settings = Vec::new();
            frame(&mut settings, SETTINGS, 0, 0, &[]);
            far.write_all(&settings).await.unwrap();
            let mut all = vec![0; opening().len() + 9];
            far.read_exact(&mut all).await.unwrap();
            assert_eq!(all[all.len() - 9..][3..5], [SETTINGS, ACK]);
        }
        let heard = async {
            while idle.heard().0.len() < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), heard)
            .await
            .expect("all that was said is heard");
        idle
    }

    fn told(idle: &Idle) -> Vec<Told> {
        idle.heard().0.iter().map(|(told, _)| *told).collect()
    }

    #[tokio::test]
    async fn pings_goaways_and_ends_are_heard_and_nothing_else() {
        let line = hears(&[(PING, 0), (8, 0), (GOAWAY, 0)], false, 2).await;
        assert_eq!(told(&line), [Told::Ping, Told::GoAway]);
        let line = hears(&[(PING, ACK)], true, 1).await;
        assert_eq!(told(&line), [Told::Closed]);
        assert_eq!(told(&hears(&[(SETTINGS, ACK)], false, 0).await), []);
    }

    #[tokio::test]
    async fn of_a_flood_only_the_beginning_is_kept() {
        let flood = [(PING, 0); 3 * NOTED];
        assert_eq!(told(&hears(&flood, false, NOTED).await).len(), NOTED);
    }

    #[tokio::test]
    async fn of_a_process_that_died_only_its_pings_count_and_of_one_that_was_ended_all() {
        let frames = [(PING, 0), (GOAWAY, 0)];
        let mut line = hears(&frames, true, 3).await;
        line.died();
        assert_eq!(told(&line), [Told::Ping]);
        let mut line = hears(&frames, true, 3).await;
        line.end();
        assert_eq!(told(&line), [Told::Ping, Told::GoAway, Told::Closed]);
        assert!(line.since().is_none());
    }
}
