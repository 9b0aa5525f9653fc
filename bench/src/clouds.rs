//! Counts the API calls that the `ccm` with a vendor's provider causes on the vendor's test API.
//! Each call takes 100 ms, and the vendor's published rate limits apply.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use comfy_table::{Table, presets::ASCII_MARKDOWN};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use testenv::objects::{LoadBalancerBuilder, NodeBuilder};
use testenv::{ControlPlane, Process, TestCloud, User, Vendor};
use tokio::time::{Instant, sleep};

use crate::contender::beside_us;
use crate::scenarios::{has_address, is_uninitialised};

/// The name of the scenario.
pub(crate) const NAME: &str = "clouds";

const NODES: usize = 1_000;
/// Hetzner's default limit of load balancers. DigitalOcean publishes none; its former limit was 10.
const BALANCERS: usize = 20;
const JOINS: usize = 20;
/// A minute stands for an hour: the ccm's two long periods are a sixtieth of their defaults.
const HOUR: Duration = Duration::from_mins(1);
const SIXTY_TIMES: [&str; 2] = [
    "--node-status-update-frequency=5s",
    "--orphaned-load-balancer-period=10s",
];

/// A figure, and the most that it may be. `None`: it has no limit.
struct Figure {
    what: String,
    is: f64,
    most: Option<f64>,
}

/// Measures each cloud, and prints a table for each. With `UPDATE_DOCS=1` it writes the table into
/// the cloud's page.
pub(crate) async fn run() -> Result<()> {
    for vendor in Vendor::ALL {
        eprintln!("{NAME}: {} ...", vendor.name());
        let figures = measure(vendor).await?;
        let mut table = Table::new();
        table
            .load_style(ASCII_MARKDOWN)
            .set_header(["situation", "measured", "at most"]);
        for figure in &figures {
            let most = figure.most.map_or(String::new(), |most| most.to_string());
            table.add_row([figure.what.clone(), figure.is.to_string(), most]);
        }
        println!("{}\n\n{table}\n", vendor.name());
        if std::env::var("UPDATE_DOCS").is_ok_and(|it| it == "1") {
            write_into_page(vendor, &figures)?;
        }
        for figure in &figures {
            if figure.most.is_some_and(|most| figure.is > most) {
                bail!("{}: {} is {}", vendor.name(), figure.what, figure.is);
            }
        }
    }
    Ok(())
}

async fn measure(vendor: Vendor) -> Result<Vec<Figure>> {
    let mut figures = large(vendor).await?;
    let named = joins(vendor, &[]).await?;
    let tagged = joins(vendor, &[target_flag(vendor)]).await?;
    let hour = vendor.calls_an_hour() as f64;
    let (flag, _) = target_flag(vendor).split_once('=').context("a flag")?;
    figures.push(Figure {
        what: format!("{JOINS} Nodes join half a second apart, {BALANCERS} load balancers: calls"),
        is: named,
        most: Some(hour),
    });
    figures.push(Figure {
        what: format!("the same with `{flag}`: calls"),
        is: tagged,
        most: Some(hour / 10.0),
    });
    Ok(figures)
}

/// The provider's flag that makes all machines with a tag (DigitalOcean) or a label (Hetzner) the
/// targets of load balancers.
fn target_flag(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::DigitalOcean => "--target-tag=k8s",
        Vendor::Hetzner => "--target-selector=k8s",
    }
}

/// Measures a thousand Nodes: their initialisation, a restart with load balancers, and an idle
/// hour.
async fn large(vendor: Vendor) -> Result<Vec<Figure>> {
    let mut world = World::new(vendor, NODES).await?;
    world.register(0..NODES).await?;
    let flags = [target_flag(vendor)];
    let began = Instant::now();
    world.start(&flags, &[])?;
    world.initialised().await?;
    let seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    let initialised = world.calls()?;

    world.expose().await?;
    world.quiet().await?;
    world.kill();
    world.forget()?;
    let writes = world.cloud.writes()?;
    world.start(&flags, &[])?;
    let restart = world.quiet().await?;
    let changed = world.cloud.writes()? - writes;

    world.kill();
    world.start(&flags, &SIXTY_TIMES)?;
    // By then the calls of the restart should be over, and the regular rounds have begun.
    sleep(HOUR / 4).await;
    world.forget()?;
    sleep(HOUR).await;
    let idle = world.calls()?;
    let hour = vendor.calls_an_hour() as f64;
    let most = match vendor {
        Vendor::DigitalOcean => 18.0,
        Vendor::Hetzner => 30.0,
    };
    let figure = |what: &str, is: f64, most: Option<f64>| Figure {
        what: what.to_owned(),
        is,
        most,
    };
    Ok(vec![
        figure("1,000 Nodes initialised: seconds", seconds, Some(10.0)),
        figure("1,000 Nodes initialised: calls", initialised, Some(most)),
        figure(
            &format!("an idle hour, 1,000 Nodes and {BALANCERS} load balancers: calls"),
            idle,
            Some(hour / 10.0),
        ),
        figure("ccm and provider restarted there: calls", restart, None),
        figure(
            "of these, calls that change something",
            changed as f64,
            Some(0.0),
        ),
    ])
}

/// The number of calls while Nodes join one after another.
async fn joins(vendor: Vendor, flags: &[&str]) -> Result<f64> {
    let mut world = World::new(vendor, 2 + JOINS).await?;
    world.register(0..2).await?;
    world.start(flags, &[])?;
    world.initialised().await?;
    world.expose().await?;
    world.quiet().await?;
    world.forget()?;
    for number in 2..2 + JOINS {
        world.register(number..number + 1).await?;
        sleep(Duration::from_millis(500)).await;
    }
    world.initialised().await?;
    world.all_are_targets(2 + JOINS).await?;
    world.quiet().await
}

/// A cluster, a cloud, and the processes between them.
struct World {
    ccm: Option<Process>,
    cloud: TestCloud,
    plane: ControlPlane,
}

impl World {
    async fn new(vendor: Vendor, machines: usize) -> Result<Self> {
        let plane = ControlPlane::start().await?;
        let cloud = TestCloud::start(vendor, plane.directory()).await?;
        for number in 0..machines {
            let name = format!("node-{number}");
            let machine = match vendor {
                Vendor::DigitalOcean => json!({"name": name, "tags": ["k8s"]}),
                Vendor::Hetzner => json!({"name": name, "labels": {"k8s": "yes"}}),
            };
            cloud.ask("POST", "machines", &machine)?;
        }
        cloud.ask("PUT", "latency", &json!({"ms": 100}))?;
        Ok(Self {
            ccm: None,
            cloud,
            plane,
        })
    }

    /// Starts the provider and the ccm, without leader election, which would take time.
    fn start(&mut self, provider: &[&str], ccm: &[&str]) -> Result<()> {
        self.cloud.start_provider(provider)?;
        let mut command = Command::new(beside_us("ccm")?);
        command
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig(User::Admin))
            .arg(format!(
                "--provider={}={}",
                self.cloud.vendor.name(),
                self.cloud.endpoint()
            ))
            .args(["--secure-port=0", "--leader-elect=false"])
            .args(ccm);
        let log = self.plane.directory().join("ccm.log");
        self.ccm = Some(Process::start(command, log)?);
        Ok(())
    }

    /// kill -9 of the provider and the ccm.
    fn kill(&mut self) {
        self.ccm = None;
        self.cloud.kill_provider();
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.plane.client())
    }

    async fn register(&self, numbers: std::ops::Range<usize>) -> Result<()> {
        let nodes = self.nodes();
        stream::iter(numbers)
            .map(|number| {
                let node = NodeBuilder::new(format!("node-{number}")).uninitialized();
                let nodes = nodes.clone();
                async move { nodes.create(&PostParams::default(), &node.build()).await }
            })
            .buffer_unordered(32)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        Ok(())
    }

    async fn initialised(&self) -> Result<()> {
        let (nodes, end) = (self.nodes(), Instant::now() + Duration::from_mins(10));
        let every = ListParams::default().match_any();
        while nodes.list(&every).await?.items.iter().any(is_uninitialised) {
            if Instant::now() > end {
                bail!("Nodes are not initialised after 10 min");
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Makes Services with load balancers, and waits until each has its address.
    async fn expose(&self) -> Result<()> {
        let services: Api<Service> = Api::namespaced(self.plane.client(), "default");
        for number in 0..BALANCERS {
            let web = LoadBalancerBuilder::new("default", format!("web-{number}")).build();
            services.create(&PostParams::default(), &web).await?;
        }
        let end = Instant::now() + Duration::from_mins(10);
        let every = ListParams::default().match_any();
        while !services.list(&every).await?.items.iter().all(has_address) {
            if Instant::now() > end {
                bail!("Services have no addresses after 10 min");
            }
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    fn forget(&self) -> Result<()> {
        self.cloud.ask("DELETE", "journal", &Value::Null)?;
        Ok(())
    }

    fn calls(&self) -> Result<f64> {
        Ok(self.cloud.calls()?.values().sum::<u64>() as f64)
    }

    /// Waits until each load balancer has this many targets, for at most 15 min. The cloud refuses
    /// calls beyond its rate limit, so this can take minutes.
    async fn all_are_targets(&self, machines: usize) -> Result<()> {
        let end = Instant::now() + Duration::from_mins(15);
        loop {
            let all = self.cloud.balancers()?;
            if all.iter().all(|it| it.targets.len() == machines) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("after 15 min some load balancers do not have {machines} targets");
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Waits until no call was made for 20 s. Returns the number of calls since [`Self::forget`].
    async fn quiet(&self) -> Result<f64> {
        let mut last = (self.calls()?, Instant::now());
        let end = Instant::now() + Duration::from_mins(15);
        while last.1.elapsed() < Duration::from_secs(20) {
            sleep(Duration::from_millis(500)).await;
            let now = self.calls()?;
            if now > last.0 {
                last = (now, Instant::now());
            }
            if Instant::now() > end {
                bail!("the calls never stopped: {now}");
            }
        }
        Ok(last.0)
    }
}

/// Puts the table between its marks in the cloud's page.
fn write_into_page(vendor: Vendor, figures: &[Figure]) -> Result<()> {
    let path = format!(
        "{}/../docs/{}.md",
        env!("CARGO_MANIFEST_DIR"),
        vendor.name()
    );
    let page = std::fs::read_to_string(&path)?;
    let (begin, end) = ("<!-- figures -->\n", "<!-- end of figures -->");
    let missing = || format!("{path} has no {begin:?} and {end:?}");
    let (before, rest) = page.split_once(begin).with_context(missing)?;
    let (_, after) = rest.split_once(end).with_context(missing)?;
    let mut table = String::from("| situation | measured | at most |\n|---|---|---|\n");
    for Figure { what, is, most } in figures {
        let most = most.map_or(String::new(), |most| most.to_string());
        writeln!(table, "| {what} | {is} | {most} |")?;
    }
    std::fs::write(&path, format!("{before}{begin}{table}{end}{after}"))?;
    Ok(())
}
