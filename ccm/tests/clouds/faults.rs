//! Refusals by the cloud: `kubectl describe` explains them, the ccm continues when the cloud
//! accepts calls again, and objects of others stay.

use kube::api::PostParams;
use serde_json::{Value, json};
use testenv::objects::NodeBuilder;
use testenv::{Vendor, eventually};

use crate::world::{SOON, World};

/// A fault that affects a new Service.
struct Fault {
    name: &'static str,
    play: fn(&World),
    annotations: fn(Vendor) -> &'static [(&'static str, &'static str)],
    /// The words that one line of the events must contain.
    says: fn(Vendor) -> &'static [&'static str],
    mend: Mend,
}

/// How the fault is fixed.
enum Mend {
    /// It goes away by itself.
    Itself,
    /// Somebody does this in the cloud.
    Cloud(fn(&World)),
    /// The Service's user asks for something else, by this annotation.
    User(fn(Vendor) -> (&'static str, &'static str)),
}

const NONE: fn(Vendor) -> &'static [(&'static str, &'static str)] = |_| &[];

/// The cloud answers the next creation of a load balancer with this refusal.
fn refuse(world: &World, status: u16, header: &Value, code: &str, message: &str) {
    let body = match world.cloud.vendor {
        Vendor::DigitalOcean => json!({"id": code, "message": message, "request_id": "r-1"}),
        Vendor::Hetzner => json!({"error": {"code": code, "message": message, "details": null}}),
    };
    world.plan(&json!({
        "match": "^POST /v./load_balancers$", "status": status, "header": header, "body": body.to_string()
    }));
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "quota",
        play: |world| world.cloud.set(&json!({"load_balancer_limit": 1})).unwrap(),
        annotations: NONE,
        says: |vendor| match vendor {
            Vendor::DigitalOcean => &[
                "SyncLoadBalancerFailed",
                "PRECONDITION",
                "load balancer limit of 1",
            ],
            Vendor::Hetzner => &[
                "SyncLoadBalancerFailed",
                "PRECONDITION",
                "load balancer limit exceeded",
            ],
        },
        mend: Mend::Cloud(|world| world.cloud.set(&json!({})).unwrap()),
    },
    Fault {
        name: "refused-with-422",
        play: |world| {
            let code = match world.cloud.vendor {
                Vendor::DigitalOcean => "unprocessable_entity",
                Vendor::Hetzner => "unsupported_error",
            };
            refuse(world, 422, &json!({}), code, "the moon is not full");
        },
        annotations: NONE,
        says: |_| {
            &[
                "SyncLoadBalancerFailed",
                "INVALID",
                "the moon is not full",
                "next try when the object changes",
            ]
        },
        mend: Mend::User(|vendor| match vendor {
            Vendor::DigitalOcean => ("service.beta.kubernetes.io/do-loadbalancer-size-unit", "2"),
            Vendor::Hetzner => (
                "load-balancer.hetzner.cloud/algorithm-type",
                "least_connections",
            ),
        }),
    },
    Fault {
        name: "fails-with-503",
        play: |world| {
            let code = match world.cloud.vendor {
                Vendor::DigitalOcean => "service_unavailable",
                Vendor::Hetzner => "server_error",
            };
            refuse(world, 503, &json!({}), code, "on fire");
        },
        annotations: NONE,
        says: |_| &["SyncLoadBalancerFailed", "UNAVAILABLE", "on fire"],
        mend: Mend::Itself,
    },
    Fault {
        name: "throttled-with-a-time",
        play: |world| throttle(world, true),
        annotations: NONE,
        says: |_| {
            &[
                "SyncLoadBalancerFailed",
                "THROTTLED",
                "slow down",
                "next try at 20",
            ]
        },
        mend: Mend::Itself,
    },
    Fault {
        name: "throttled-without-a-time",
        play: |world| throttle(world, false),
        annotations: NONE,
        says: |_| {
            &[
                "SyncLoadBalancerFailed",
                "THROTTLED",
                "slow down",
                "next try at 20",
            ]
        },
        mend: Mend::Itself,
    },
    Fault {
        name: "name-taken",
        play: |world| {
            world
                .cloud
                .ask("POST", "balancers/taken", &Value::Null)
                .unwrap();
        },
        annotations: |vendor| match vendor {
            Vendor::DigitalOcean => &[("service.beta.kubernetes.io/do-loadbalancer-name", "taken")],
            Vendor::Hetzner => &[("load-balancer.hetzner.cloud/name", "taken")],
        },
        says: |_| &["SyncLoadBalancerFailed", "CONFLICT", "taken"],
        // The object in the way belongs to others, and stays.
        mend: Mend::User(|vendor| match vendor {
            Vendor::DigitalOcean => ("service.beta.kubernetes.io/do-loadbalancer-name", "free"),
            Vendor::Hetzner => ("load-balancer.hetzner.cloud/name", "free"),
        }),
    },
    Fault {
        name: "token-expired",
        play: |world| {
            let path = format!("tokens/{}", world.cloud.vendor.token());
            world
                .cloud
                .ask("PUT", &path, &json!({"expired": true}))
                .unwrap();
        },
        annotations: NONE,
        says: |_| {
            &[
                "ProviderCredentialsRefused",
                "refuses the token",
                "TokenRefused",
            ]
        },
        // The operator replaces the token and restarts nothing.
        mend: Mend::Cloud(|world| {
            world.cloud.ask("PUT", "tokens/fresh", &json!({})).unwrap();
            world.cloud.put_token("fresh").unwrap();
        }),
    },
    // The unreadable page may contain the Service's own load balancer, so none is created.
    Fault {
        name: "page-in-the-middle",
        play: |world| {
            let page = |number| format!("^GET /v./load_balancers[?](.*&)?page={number}(&|$)");
            let (first, second) = (page(1), page(2));
            let body = first_of_two_pages(world.cloud.vendor).to_string();
            world.plan(&json!({"match": first, "body": body, "times": -1}));
            world.plan(&json!({"match": second, "status": 500, "times": -1}));
        },
        annotations: NONE,
        says: |_| {
            &[
                "SyncLoadBalancerFailed",
                "UNAVAILABLE",
                "listing load balancers",
            ]
        },
        mend: Mend::Cloud(|world| {
            world.cloud.ask("DELETE", "plans", &Value::Null).unwrap();
        }),
    },
];

/// A page with a load balancer of another owner, followed by another page.
fn first_of_two_pages(vendor: Vendor) -> Value {
    match vendor {
        Vendor::DigitalOcean => json!({
            "load_balancers": [{"id": "11111111-1111-4111-8111-111111111111", "name": "theirs", "status": "active"}],
            "links": {"pages": {"next": "http://do/v2/load_balancers?page=2", "last": "http://do/v2/load_balancers?page=2"}},
            "meta": {"total": 201}
        }),
        Vendor::Hetzner => json!({
            "load_balancers": [{"id": 1, "name": "theirs", "labels": {}}],
            "meta": {"pagination": {"page": 1, "per_page": 50, "previous_page": null, "next_page": 2, "last_page": 2, "total_entries": 51}}
        }),
    }
}

/// The cloud throttles once. With `told` its answer says when that ends.
fn throttle(world: &World, told: bool) {
    let (header, code) = match world.cloud.vendor {
        Vendor::DigitalOcean => ("Retry-After", "too_many_requests"),
        Vendor::Hetzner => ("RateLimit-Reset", "rate_limit_exceeded"),
    };
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let until = match world.cloud.vendor {
        Vendor::DigitalOcean => "3".to_owned(),
        Vendor::Hetzner => (now + 3).to_string(),
    };
    let header = if told {
        json!({header: until})
    } else {
        json!({})
    };
    refuse(world, 429, &header, code, "too many calls");
}

#[tokio::test]
async fn where_digitalocean_refuses_the_service_says_why_and_is_served_when_that_is_over() {
    told_and_mended(Vendor::DigitalOcean).await;
}

#[tokio::test]
async fn where_hetzner_refuses_the_service_says_why_and_is_served_when_that_is_over() {
    told_and_mended(Vendor::Hetzner).await;
}

async fn told_and_mended(vendor: Vendor) {
    let world = World::running(vendor, 1).await;
    world.join(0).await;
    world.expose("before", &[]).await;
    world.served("before").await;
    for fault in FAULTS {
        (fault.play)(&world);
        let there = world.cloud.balancers().unwrap();
        world.expose(fault.name, (fault.annotations)(vendor)).await;
        let line = world
            .tells("service", fault.name, (fault.says)(vendor))
            .await;
        let token = [vendor.token(), "fresh"].iter().any(|it| line.contains(it));
        assert!(!token, "{line}");
        match fault.mend {
            // The fault may be over already.
            Mend::Itself => {}
            Mend::Cloud(mend) => {
                assert_eq!(world.cloud.balancers().unwrap(), there, "{}", fault.name);
                mend(&world);
            }
            Mend::User(asks) => {
                assert_eq!(world.cloud.balancers().unwrap(), there, "{}", fault.name);
                let (key, value) = asks(vendor);
                let patch = json!({"metadata": {"annotations": {key: value}}});
                world.edit_service(fault.name, patch).await;
            }
        }
        world.served(fault.name).await;
        world.unexpose(fault.name).await;
        let left = world.cloud.balancers().unwrap();
        assert_eq!(left, there, "{}: somebody else's", fault.name);
    }
}

/// The cloud's operation does not end before the test ends it. Until then the event says pending,
/// and nothing is created twice. Then the Service is served.
#[tokio::test]
async fn a_load_balancer_whose_action_never_ends_is_pending_and_made_once() {
    const DAY_MS: u64 = 86_400_000;
    for vendor in Vendor::ALL {
        let world = World::running(vendor, 1).await;
        world.join(0).await;
        let slow = match vendor {
            Vendor::DigitalOcean => "provision_ms",
            Vendor::Hetzner => "action_ms",
        };
        world.cloud.set(&json!({slow: DAY_MS})).unwrap();
        world.expose("web", &[]).await;
        let pending = ["LoadBalancerPending", "not ready yet"];
        world.tells("service", "web", &pending).await;
        world.renewals(3).await;
        assert_eq!(world.made(), 1);
        world.cloud.set(&json!({})).unwrap();
        if vendor == Vendor::Hetzner {
            world.cloud.ask("DELETE", "actions", &Value::Null).unwrap();
        }
        world.served("web").await;
        world.unexpose("web").await;
        assert_eq!(world.made(), 1);
        assert_eq!(world.cloud.balancers().unwrap(), []);
    }
}

/// A machine that is missing because the list's second page failed is not gone.
#[tokio::test]
async fn a_page_that_fails_in_the_middle_is_told_and_no_node_is_lost() {
    const NODES: usize = 12;
    for vendor in Vendor::ALL {
        let (page, list) = match vendor {
            Vendor::DigitalOcean => (200, "droplets"),
            Vendor::Hetzner => (50, "servers"),
        };
        let mut world = World::new(vendor, page + 1).await;
        for number in 0..NODES {
            world.register(number).await;
        }
        let second = format!("/{list}[?].*\\bpage=2\\b");
        world.plan(&json!({"match": second, "status": 500, "times": -1}));
        world.cloud.start_provider(&[]).unwrap();
        world.start_ccm(&[]);
        let told = ["NodeNotInitialized", "UNAVAILABLE"];
        world.tells("node", "node-0", &told).await;
        world.cloud.ask("DELETE", "plans", &Value::Null).unwrap();
        for number in 0..NODES {
            world.initialised(&format!("node-{number}")).await;
        }
    }
}

/// The provider starts with a wrong setting or token. The ccm changes nothing in the cloud, and an
/// event on the Node says why.
#[tokio::test]
async fn wrong_settings_and_a_wrong_token_at_the_start_are_told_where_operators_look() {
    for vendor in Vendor::ALL {
        let wrong: [(&str, &[&str]); 2] = match vendor {
            Vendor::DigitalOcean => [
                ("--region=xyz9", &["\"xyz9\"", "fra1, nyc1"]),
                (
                    "--vpc=00000000-0000-4000-8000-000000000000",
                    &["--vpc", "has no VPC"],
                ),
            ],
            Vendor::Hetzner => [
                ("--network=nowhere", &["--network", "\"nowhere\""]),
                ("--load-balancer-location=mars1", &["\"mars1\"", "fsn1"]),
            ],
        };
        let mut world = World::new(vendor, 1).await;
        let node = NodeBuilder::new("node-0").uninitialized().build();
        world
            .nodes()
            .create(&PostParams::default(), &node)
            .await
            .unwrap();
        world.cloud.put_token("nobody-knows-it").unwrap();
        world.cloud.start_provider(&[wrong[0].0]).unwrap();
        world.start_ccm(&[]);
        let refused = ["NodeNotInitialized", "refuses the token"];
        world.tells("node", "node-0", &refused).await;
        // With the right token, the next fault is reported without a restart.
        world.cloud.put_token(vendor.token()).unwrap();
        let words = [&["NodeNotInitialized"], wrong[0].1].concat();
        world.tells("node", "node-0", &words).await;
        world.cloud.kill_provider();
        world.cloud.start_provider(&[wrong[1].0]).unwrap();
        let words = [&["NodeNotInitialized"], wrong[1].1].concat();
        world.tells("node", "node-0", &words).await;
        assert_eq!(world.cloud.writes().unwrap(), 0);
        world.cloud.kill_provider();
        world.cloud.start_provider(&[]).unwrap();
        world.initialised("node-0").await;
    }
}

#[tokio::test]
async fn a_load_balancer_that_was_deleted_by_hand_is_made_anew() {
    for vendor in Vendor::ALL {
        let world = World::running(vendor, 2).await;
        world.join(0).await;
        world.expose("web", &[]).await;
        let first = world.served("web").await;
        let path = format!("balancers/{}", first.id);
        world.cloud.ask("DELETE", &path, &Value::Null).unwrap();
        // The next call for this load balancer detects that it is missing.
        world.join(1).await;
        let second = eventually("there is another one", SOON, async || {
            let all = world.cloud.balancers().unwrap();
            match all.as_slice() {
                [one] if one.targets.len() == 2 => Ok(one.clone()),
                other => Err(format!("{other:?} {:?}", world.events("web").await)),
            }
        })
        .await;
        assert_ne!(first.id, second.id);
        assert_eq!(world.served("web").await.id, second.id);
        world
            .tells("service", "web", &["EnsuredLoadBalancer", "(x2 over"])
            .await;
        world.unexpose("web").await;
        assert_eq!(world.cloud.balancers().unwrap(), []);
    }
}

#[tokio::test]
async fn two_clusters_of_one_name_in_one_account_leave_each_others_load_balancers_alone() {
    for vendor in Vendor::ALL {
        let one = World::running(vendor, 2).await;
        let mut other = World::beside(&one).await;
        other.cloud.start_provider(&[]).unwrap();
        other.start_ccm(&[]);
        one.join(0).await;
        other.join(1).await;
        for world in [&one, &other] {
            world.expose("web", &[]).await;
        }
        let (mine, theirs) = (one.served("web").await, other.served("web").await);
        assert_ne!(mine.id, theirs.id);
        assert_eq!(
            (mine.targets, theirs.targets.clone()),
            (vec!["node-0".to_owned()], vec!["node-1".to_owned()])
        );
        one.unexpose("web").await;
        assert_eq!(other.cloud.balancers().unwrap(), [theirs]);
        other.unexpose("web").await;
        assert_eq!(one.cloud.balancers().unwrap(), []);
    }
}
