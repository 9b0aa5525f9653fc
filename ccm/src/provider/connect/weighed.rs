//! The body of an answer, weighed message by message.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;

use super::super::weigh::Weight;

/// The most bytes of a message that the reader gets at once. If it got all, it would make room for
/// the message twice.
const PIECE: usize = 16 * 1024;

/// Yields each message when it is complete and was weighed, and at the end the bytes of a message
/// that was cut off, if any. Ends with an error if [`Weight`] refuses the answer. Nothing after
/// that is read.
pub(in super::super) struct Weighed {
    body: Incoming,
    weight: Weight,
    /// Weighed messages that the reader has not got yet.
    ready: Bytes,
    /// The trailers after a message that was cut off.
    trailers: Option<Frame<Bytes>>,
}

impl Weighed {
    pub(super) fn new(body: Incoming, weight: Weight) -> Self {
        Self {
            body,
            weight,
            ready: Bytes::new(),
            trailers: None,
        }
    }
}

impl Body for Weighed {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        while self.ready.is_empty() {
            if let Some(trailers) = self.trailers.take() {
                return Poll::Ready(Some(Ok(trailers)));
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?;
            let Some(data) = frame.as_ref().and_then(Frame::data_ref) else {
                // The end or the trailers. If a message was cut off, tonic reports that, or the
                // error in the trailers. If their status is OK, it drops what is left.
                self.ready = self.weight.rest();
                if self.ready.is_empty() {
                    return Poll::Ready(frame.map(Ok));
                }
                self.trailers = frame;
                break;
            };
            self.ready = self.weight.add(data)?;
        }
        let piece = PIECE.min(self.ready.len());
        let piece = self.ready.split_to(piece);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}
