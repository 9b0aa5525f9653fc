//! A connection to the provider, and the owner of its requests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use cloud_provider_api::v1alpha1 as pb;
use prost::Message as _;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::call::{Exchange, Listed, Listing, Rpc};
use super::check::{Stop, Verdict};
use super::ledger::{Ledger, Made};

/// The limit for each step of a new connection: the socket, then HTTP/2.
const CONNECT: Duration = Duration::from_secs(5);
/// The contract's default deadline of a listing.
const LIST: Duration = Duration::from_mins(5);

/// A connection, and the owner that its requests carry unless they have one.
#[derive(Clone)]
pub(crate) struct Session {
    channel: Channel,
    cluster: pb::ClusterRef,
    ledger: Arc<Ledger>,
}

impl Session {
    pub(crate) async fn dial(
        path: &Path,
        cluster: pb::ClusterRef,
        ledger: Arc<Ledger>,
    ) -> Result<Self, String> {
        let late = |_| format!("no connection within {CONNECT:?}");
        let stream = tokio::time::timeout(CONNECT, UnixStream::connect(path))
            .await
            .map_err(late)?
            .map_err(|error| error.to_string())?;
        // The channel gets this one connection. A channel that reconnects would hide that the
        // provider closed it.
        let mut stream = Some(hyper_util::rt::TokioIo::new(stream));
        let connector =
            tower::service_fn(move |_: Uri| std::future::ready(stream.take().ok_or_else(closed)));
        // `:authority` is `localhost` (CORE-1).
        let endpoint = Endpoint::from_static("http://localhost")
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(4 * 1024 * 1024);
        let channel = tokio::time::timeout(CONNECT, endpoint.connect_with_connector(connector))
            .await
            .map_err(late)?
            .map_err(|error| innermost(&error))?;
        Ok(Self {
            channel,
            cluster,
            ledger,
        })
    }

    pub(crate) fn cluster(&self) -> &pb::ClusterRef {
        &self.cluster
    }

    /// The same connection for another owner, which need not be initialised.
    pub(crate) fn speaking_for(&self, cluster: pb::ClusterRef) -> Self {
        Self {
            cluster,
            ..self.clone()
        }
    }

    /// Calls with the suite's deadline for this RPC.
    pub(crate) async fn call<R: Rpc>(&self, request: R) -> Exchange<R::Response> {
        self.call_within(request, R::DEADLINE).await
    }

    /// Calls with this deadline, and sends the provider the deadline as `grpc-timeout`. A request
    /// without a `cluster` gets this session's cluster. `call_as_is` leaves it unset.
    pub(crate) async fn call_within<R: Rpc>(
        &self,
        mut request: R,
        deadline: Duration,
    ) -> Exchange<R::Response> {
        if request.cluster().is_none() {
            request.set_cluster(Some(self.cluster.clone()));
        }
        self.call_as_is(request, deadline).await
    }

    /// Sends the request as it is, unless the ledger forbids it.
    pub(crate) async fn call_as_is<R: Rpc>(
        &self,
        request: R,
        deadline: Duration,
    ) -> Exchange<R::Response> {
        let began = Instant::now();
        let made = Made::by(&request);
        let came = match made.as_ref().map(|made| self.ledger.permit(made)) {
            Some(Err(why)) => Err(Status::failed_precondition(why)),
            _ => self.unary(request.clone(), deadline).await,
        };
        if let (Some(made), Ok(answer)) = (&made, &came) {
            self.ledger.answered(made, answer);
        }
        Exchange {
            rpc: R::NAME,
            sent: Arc::new(request),
            came,
            took: began.elapsed(),
        }
    }

    /// The request with this session's cluster. Records it if it may create something. For checks
    /// that send the bytes of a request themselves.
    pub(crate) fn noted<R: Rpc>(&self, mut request: R) -> Verdict<R> {
        request.set_cluster(Some(self.cluster.clone()));
        let made = Made::by(&request);
        let permitted = made.map_or(Ok(()), |made| self.ledger.permit(&made));
        let fault = |why| Stop::failed("(the suite)", R::NAME, "only the suite's objects", why);
        permitted.map(|()| request).map_err(fault)
    }

    async fn unary<R: Rpc>(&self, request: R, deadline: Duration) -> Result<R::Response, Status> {
        let _open = self.ledger.opens();
        let mut grpc = self.grpc(R::NAME).await?;
        let codec = ProstCodec::<R, R::Response>::default();
        let call = grpc.unary(timed(request, deadline), path(R::PATH), codec);
        bounded(deadline, call).await.map(Response::into_inner)
    }

    /// Reads a listing to its end, with the contract's deadline.
    pub(crate) async fn list<R: Listing>(&self, request: R) -> Exchange<Listed<R::Response>> {
        self.list_within(request, LIST).await
    }

    /// Reads a listing to its end, within this deadline.
    pub(crate) async fn list_within<R: Listing>(
        &self,
        mut request: R,
        deadline: Duration,
    ) -> Exchange<Listed<R::Response>> {
        if request.cluster().is_none() {
            request.set_cluster(Some(self.cluster.clone()));
        }
        self.list_as_is(request, deadline).await
    }

    /// Reads a listing to its end, with a pause before each message.
    pub(crate) async fn list_slowly<R: Listing>(
        &self,
        mut request: R,
        pause: Duration,
    ) -> Exchange<Listed<R::Response>> {
        request.set_cluster(Some(self.cluster.clone()));
        self.list_paused(request, LIST, pause).await
    }

    /// Sends the request as it is and reads the listing to its end.
    pub(crate) async fn list_as_is<R: Listing>(
        &self,
        request: R,
        deadline: Duration,
    ) -> Exchange<Listed<R::Response>> {
        self.list_paused(request, deadline, Duration::ZERO).await
    }

    async fn list_paused<R: Listing>(
        &self,
        request: R,
        deadline: Duration,
        pause: Duration,
    ) -> Exchange<Listed<R::Response>> {
        let began = Instant::now();
        let read = async {
            let mut grpc = self.grpc(R::NAME).await?;
            let codec = ProstCodec::<R, R::Response>::default();
            let call =
                grpc.server_streaming(timed(request.clone(), deadline), path(R::PATH), codec);
            let mut stream = call.await?.into_inner();
            let mut listed = Listed {
                parts: Vec::new(),
                status: None,
            };
            let most = pb::most_answer_bytes(R::NAME);
            let mut bytes = 0;
            loop {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                match stream.message().await {
                    Ok(Some(part)) => {
                        bytes += part.encoded_len();
                        listed.parts.push(part);
                        if bytes > most {
                            let why = format!("the listing has more than {most} bytes (CORE-11)");
                            listed.status = Some((Code::OutOfRange, why));
                            return Ok(listed);
                        }
                    }
                    Ok(None) => return Ok(listed),
                    Err(status) => {
                        listed.status = Some((status.code(), status.message().to_owned()));
                        return Ok(listed);
                    }
                }
            }
        };
        let open = self.ledger.opens();
        let came = bounded(deadline, read).await;
        drop(open);
        Exchange {
            rpc: R::NAME,
            sent: Arc::new(request),
            came,
            took: began.elapsed(),
        }
    }

    /// An open WatchChanges. The caller limits its duration and length.
    pub(crate) async fn watch(
        &self,
        request: pb::WatchChangesRequest,
    ) -> Result<Streaming<pb::WatchChangesResponse>, Status> {
        let mut grpc = self.grpc("WatchChanges").await?;
        let codec = ProstCodec::<pb::WatchChangesRequest, pb::WatchChangesResponse>::default();
        let path = path("/cloudprovider.v1alpha1.ProviderService/WatchChanges");
        let call = grpc.server_streaming(Request::new(request), path, codec);
        // A provider may send the answer's headers only with the first message.
        call.await.map(Response::into_inner)
    }

    /// Sends these bytes as the message of a unary call. Returns the bytes of the answer.
    pub(crate) async fn raw(
        &self,
        rpc_path: &str,
        message: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, Status> {
        let answer = self.raw_with(rpc_path, message, deadline, &[]).await;
        answer.map(Response::into_inner)
    }

    /// Like [`Self::raw`], with further metadata. Returns the answer's metadata too.
    pub(crate) async fn raw_with(
        &self,
        rpc_path: &str,
        message: Bytes,
        deadline: Duration,
        metadata: &[(&'static str, &'static str)],
    ) -> Result<Response<Bytes>, Status> {
        let path = path_of(rpc_path)?;
        let _open = self.ledger.opens();
        let mut request = timed(message, deadline);
        for (key, value) in metadata {
            let value = MetadataValue::from_static(value);
            request.metadata_mut().insert(*key, value);
        }
        let mut grpc = self.grpc(rpc_path).await?;
        bounded(deadline, grpc.unary(request, path, RawCodec)).await
    }

    /// A call whose request never ends. Dropping the result cancels it.
    pub(crate) async fn half_open(&self, rpc_path: &str) -> Result<HalfOpen, Status> {
        let path = path_of(rpc_path)?;
        let mut grpc = self.grpc(rpc_path).await?;
        Ok(HalfOpen(tokio::spawn(async move {
            let request = Request::new(futures::stream::pending::<Bytes>());
            let _ = grpc.client_streaming(request, path, RawCodec).await;
        })))
    }

    /// A client for the RPC of this path or name. No message of its answer may be larger than the
    /// controller's limit (CORE-11).
    async fn grpc(&self, rpc: &str) -> Result<Grpc<Channel>, Status> {
        let name = rpc.rsplit('/').next().unwrap_or_default();
        let mut grpc = Grpc::new(self.channel.clone())
            .max_decoding_message_size(pb::most_answer_bytes(name).min(pb::MOST_MESSAGE_BYTES))
            .max_encoding_message_size(usize::MAX);
        grpc.ready()
            .await
            .map_err(|error| Status::unavailable(innermost(&error)))?;
        Ok(grpc)
    }
}

fn timed<M>(message: M, deadline: Duration) -> Request<M> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

/// Limits the wait for a provider that does not keep the deadline.
async fn bounded<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let began = tokio::time::Instant::now();
    let ended = tokio::time::timeout(deadline, call).await;
    match ended {
        // tonic also enforces a request's deadline, and ends the call at the same time with its own
        // message.
        Ok(Err(status)) if status.code() == Code::Cancelled && began.elapsed() >= deadline => {}
        Ok(ended) => return ended,
        Err(_) => {}
    }
    Err(Status::deadline_exceeded(format!(
        "(the suite) no answer within the deadline of {deadline:?}"
    )))
}

fn path(path: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(path)
}

fn path_of(path: &str) -> Result<PathAndQuery, Status> {
    PathAndQuery::try_from(path.to_owned())
        .map_err(|error| Status::invalid_argument(error.to_string()))
}

/// A call that is open until this is dropped.
pub(crate) struct HalfOpen(JoinHandle<()>);

impl Drop for HalfOpen {
    fn drop(&mut self) {
        self.0.abort();
    }
}

const CLOSED: &str = "the provider closed the connection";

fn closed() -> std::io::Error {
    std::io::Error::other(CLOSED)
}

/// Whether the connection was closed before the call.
pub(crate) fn hung_up(status: &Status) -> bool {
    status.code() == Code::Unavailable && status.message() == CLOSED
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Messages as bytes.
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
