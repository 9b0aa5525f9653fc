//! The body of an answer, weighed as it arrives.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::super::weigh::Weight;

/// Ends with an error if [`Weight`] refuses the answer. Nothing after that is read.
pub(in super::super) struct Weighed {
    body: Incoming,
    weight: Weight,
}

impl Weighed {
    pub(super) fn new(body: Incoming, weight: Weight) -> Self {
        Self { body, weight }
    }
}

impl Body for Weighed {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?;
        if let Some(data) = frame.as_ref().and_then(Frame::data_ref) {
            self.weight.add(data)?;
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
