//! Service accounts of the controllers (`--use-service-account-credentials`). The two Node
//! controllers share one. The ccm creates missing accounts, and requests and renews their tokens.

use std::sync::Mutex;
use std::time::Duration;

use http::HeaderValue;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::core::lock;

/// The namespace of the controllers' accounts.
const NAMESPACE: &str = "kube-system";
/// The requested lifetime of a token, as upstream requests it. The API server may choose another.
const LIFETIME: Duration = Duration::from_hours(1);
/// The shortest lifetime to assume: the API server issues no token with a shorter one.
const LEAST: Duration = Duration::from_mins(10);
/// The wait after a failed renewal while the old token is valid.
const AGAIN: Duration = Duration::from_secs(10);

/// An account and its newest token.
pub(super) struct Account {
    name: &'static str,
    api: Api<ServiceAccount>,
    token: Mutex<Option<Token>>,
    /// Held while a token is requested.
    renewal: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Token {
    bearer: HeaderValue,
    /// After this time the next request asks for a new token.
    renew: Instant,
    end: Instant,
}

impl Account {
    /// `client` creates the account and requests its tokens. It has the ccm's own identity and is
    /// fenced.
    pub(super) fn new(name: &'static str, client: Client) -> Self {
        Self {
            name,
            api: Api::namespaced(client, NAMESPACE),
            token: Mutex::default(),
            renewal: tokio::sync::Mutex::default(),
        }
    }

    /// The value of the Authorization header. Callers that arrive while a token is requested get
    /// the old one while it is valid, else they wait.
    pub(super) async fn bearer(&self) -> kube::Result<HeaderValue> {
        let until = |end: fn(&Token) -> Instant| {
            let token = lock(&self.token);
            let token = token.as_ref().filter(|it| Instant::now() < end(it));
            token.map(|it| it.bearer.clone())
        };
        if let Some(bearer) = until(|token| token.renew) {
            return Ok(bearer);
        }
        let _renewal = match self.renewal.try_lock() {
            Ok(renewal) => renewal,
            Err(_) => match until(|token| token.end) {
                Some(old) => return Ok(old),
                None => self.renewal.lock().await,
            },
        };
        // Another caller may have renewed it meanwhile.
        if let Some(bearer) = until(|token| token.renew) {
            return Ok(bearer);
        }
        let error = match self.ask().await {
            Ok(new) => return Ok(lock(&self.token).insert(new).bearer.clone()),
            Err(error) => error,
        };
        let Some(old) = until(|token| token.end) else {
            return Err(error);
        };
        if let Some(token) = &mut *lock(&self.token) {
            token.renew = Instant::now() + AGAIN;
        }
        tracing::warn!(account = self.name, %error, "cannot renew the token of a service account; the old one is still valid");
        Ok(old)
    }

    /// Drops this token, which the API server rejected.
    pub(super) fn refused(&self, bearer: &HeaderValue) {
        let mut token = lock(&self.token);
        if token.as_ref().is_some_and(|token| token.bearer == *bearer) {
            *token = None;
        }
    }

    async fn ask(&self) -> kube::Result<Token> {
        let params = PostParams {
            field_manager: Some(env!("CARGO_PKG_NAME").to_owned()),
            ..PostParams::default()
        };
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Vec::new(),
                expiration_seconds: Some(LIFETIME.as_secs().try_into().unwrap_or(i64::MAX)),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        // Counted from before the request, so never later than the real end.
        let asked = Instant::now();
        let answer = self
            .api
            .create_token_request(self.name, &params, &request)
            .await;
        let answer = match answer {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.make(&params).await?;
                self.api
                    .create_token_request(self.name, &params, &request)
                    .await?
            }
            answer => answer?,
        };
        let unusable = |what: &str| {
            kube::Error::Service(
                format!("the token of the service account {}: {what}", self.name).into(),
            )
        };
        let token = answer
            .status
            .map(|status| status.token)
            .filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| unusable("the answer has none"))?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| unusable("it is no text for a header"))?;
        bearer.set_sensitive(true);
        let lifetime = answer
            .spec
            .expiration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(LIFETIME, Duration::from_secs)
            .max(LEAST);
        Ok(Token {
            bearer,
            renew: asked + lifetime.mul_f64(0.8),
            end: asked + lifetime,
        })
    }

    async fn make(&self, params: &PostParams) -> kube::Result<()> {
        let account = ServiceAccount {
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            ..ServiceAccount::default()
        };
        match self.api.create(params, &account).await {
            Ok(_) => {
                tracing::info!(
                    account = self.name,
                    "created the service account of a controller"
                );
                Ok(())
            }
            // Another process created it first.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex as StdMutex};

    use http::{Request, Response};
    use kube::client::Body;
    use prometheus_client::registry::Registry;
    use serde_json::json;
    use tokio::time::{advance, sleep};

    use super::*;

    /// An API server with service accounts. It issues the tokens t1, t2, … to accounts that exist.
    #[derive(Clone, Default)]
    struct Server(Arc<StdMutex<State>>);

    #[derive(Default)]
    struct State {
        exists: bool,
        tokens: usize,
        broken: bool,
        seen: Vec<String>,
    }

    impl Server {
        fn account(&self) -> Account {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let answer = server.answer(request.uri().path());
                async move {
                    // Long enough for concurrent requests to arrive.
                    sleep(Duration::from_millis(10)).await;
                    Ok::<_, std::convert::Infallible>(answer)
                }
            });
            Account::new("node-controller", Client::new(service, "default"))
        }

        fn answer(&self, path: &str) -> Response<Body> {
            let mut state = self.0.lock().unwrap();
            state.seen.push(path.rsplit('/').next().unwrap().to_owned());
            let (code, body) = if state.broken {
                (
                    500,
                    json!({"kind": "Status", "code": 500, "message": "broken"}),
                )
            } else if path.ends_with("/serviceaccounts") {
                let before = std::mem::replace(&mut state.exists, true);
                if before {
                    (409, json!({"kind": "Status", "code": 409}))
                } else {
                    (201, json!({"metadata": {"name": "node-controller"}}))
                }
            } else if state.exists {
                state.tokens += 1;
                let token = format!("t{}", state.tokens);
                let status = json!({"token": token, "expirationTimestamp": "2000-01-01T00:00:00Z"});
                (
                    201,
                    json!({"spec": {"audiences": [], "expirationSeconds": 3600}, "status": status}),
                )
            } else {
                (
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound"}),
                )
            };
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            Response::builder().status(code).body(body).unwrap()
        }

        fn set(&self, change: impl FnOnce(&mut State)) {
            change(&mut self.0.lock().unwrap());
        }
    }

    async fn bearer(account: &Account) -> String {
        let bearer = account.bearer().await.unwrap();
        bearer.to_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn b_m5_an_account_is_made_where_it_is_absent_and_its_token_renewed_before_it_ends() {
        let server = Server::default();
        let account = server.account();
        let (one, two) = tokio::join!(bearer(&account), bearer(&account));
        assert_eq!((one.as_str(), two.as_str()), ("Bearer t1", "Bearer t1"));
        let seen = server.0.lock().unwrap().seen.clone();
        assert_eq!(seen, ["token", "serviceaccounts", "token"]);
        advance(Duration::from_mins(47)).await;
        assert_eq!(bearer(&account).await, "Bearer t1");
        advance(Duration::from_mins(2)).await;
        assert_eq!(bearer(&account).await, "Bearer t2");
        // A rejected token: the next request asks for another. Rejection of an older token changes
        // nothing.
        account.refused(&HeaderValue::from_static("Bearer t1"));
        assert_eq!(bearer(&account).await, "Bearer t2");
        account.refused(&HeaderValue::from_static("Bearer t2"));
        assert_eq!(bearer(&account).await, "Bearer t3");
    }

    #[tokio::test(start_paused = true)]
    async fn b_m5_an_old_token_is_used_as_long_as_it_holds_where_no_newer_one_can_be_had() {
        let server = Server::default();
        server.set(|state| state.exists = true);
        let account = server.account();
        assert_eq!(bearer(&account).await, "Bearer t1");
        server.set(|state| state.broken = true);
        advance(Duration::from_mins(50)).await;
        assert_eq!(bearer(&account).await, "Bearer t1");
        assert_eq!(bearer(&account).await, "Bearer t1");
        // A failed renewal is not repeated with each request.
        assert_eq!(server.0.lock().unwrap().seen.len(), 2);
        advance(Duration::from_mins(11)).await;
        assert!(account.bearer().await.is_err());
        server.set(|state| state.broken = false);
        assert_eq!(bearer(&account).await, "Bearer t2");
    }

    #[tokio::test(start_paused = true)]
    async fn b_m5_the_old_token_is_used_while_another_request_renews_it() {
        let server = Server::default();
        server.set(|state| state.exists = true);
        let account = server.account();
        assert_eq!(bearer(&account).await, "Bearer t1");
        advance(Duration::from_mins(50)).await;
        let start = Instant::now();
        let other = async { (bearer(&account).await, start.elapsed()) };
        let (renews, (other, waited)) = tokio::join!(bearer(&account), other);
        assert_eq!(
            (renews.as_str(), other.as_str()),
            ("Bearer t2", "Bearer t1")
        );
        assert_eq!(waited, Duration::ZERO);
        // A token that has ended is not used, also if another request asks for a new one.
        advance(Duration::from_mins(61)).await;
        let (one, two) = tokio::join!(bearer(&account), bearer(&account));
        assert_eq!((one.as_str(), two.as_str()), ("Bearer t3", "Bearer t3"));
    }

    #[tokio::test(start_paused = true)]
    async fn b_m5_an_account_that_another_replica_made_first_is_taken() {
        let server = Server::default();
        let (one, two) = (server.account(), server.account());
        let (first, second) = tokio::join!(bearer(&one), bearer(&two));
        let mut both = [first, second];
        both.sort();
        assert_eq!(both, ["Bearer t1", "Bearer t2"]);
    }

    /// The API server behind the accounts' requests. It accepts only the token `good` and records
    /// each token that it gets.
    fn knowing(good: &'static str, shown: &Arc<StdMutex<Vec<String>>>) -> Client {
        let shown = Arc::clone(shown);
        let service = tower::service_fn(move |request: Request<Body>| {
            let bearer = request.headers()[http::header::AUTHORIZATION]
                .to_str()
                .unwrap()
                .to_owned();
            let bearer_is_good = bearer == good;
            let code = if bearer_is_good { 200 } else { 401 };
            shown.lock().unwrap().push(bearer);
            let body = if bearer_is_good {
                json!({"metadata": {"name": "x"}})
            } else {
                json!({"kind": "Status", "code": 401})
            };
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            let answer = Response::builder().status(code).body(body).unwrap();
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn b_m5_a_token_that_is_refused_is_replaced_once() {
        use crate::core::Fence;
        use crate::kube_client::{Base, Metrics, clients};
        use k8s_openapi::api::core::v1::Node;
        use kube::api::{Patch, PatchParams};

        for (good, tokens, succeeds) in [
            ("Bearer t1", &["Bearer t1"][..], true),
            ("Bearer t2", &["Bearer t1", "Bearer t2"], true),
            ("Bearer t9", &["Bearer t1", "Bearer t2"], false),
        ] {
            let server = Server::default();
            let own = tower::service_fn({
                let server = server.clone();
                move |request: Request<Body>| {
                    let answer = server.answer(request.uri().path());
                    async move { Ok::<_, std::convert::Infallible>(answer) }
                }
            });
            let own = Client::new(own, "default");
            let clients = clients(
                own,
                Fence::open(),
                &Metrics::register(&mut Registry::default()),
                None,
                1,
            );
            let shown = Arc::default();
            let anonymous = Base::from(knowing(good, &shown));
            let client = clients.fenced_as("node-controller", &anonymous, Fence::open());
            let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
            let patched = Api::<Node>::all(client)
                .patch("x", &PatchParams::default(), &patch)
                .await;
            assert_eq!(patched.is_ok(), succeeds, "{good}: {patched:?}");
            assert_eq!(*shown.lock().unwrap(), tokens, "{good}");
        }
    }
}
