//! From flags to a [`Config`]. Errors are reported together.

use std::collections::BTreeSet;
use std::slice;
use std::time::Duration;

use super::{Args, Config, Controller, InvalidFlag, gates, parse};

impl Args {
    /// The validated configuration, or the errors in it.
    pub fn into_config(mut self) -> Result<Config, Vec<InvalidFlag>> {
        let origins = std::mem::take(&mut self.origins);
        self.validated().map_err(|mut wrong| {
            for invalid in &mut wrong {
                let origin = origins.get(invalid.flag.as_ref());
                invalid.origin = origin.map(|place| format!("{place}: "));
            }
            wrong
        })
    }

    fn validated(self) -> Result<Config, Vec<InvalidFlag>> {
        let mut wrong = Vec::new();
        let providers = self.provider.config(&mut wrong);
        let controllers = controllers(&self.controllers, &mut wrong);
        self.check(&controllers, &mut wrong);
        let serve = self.serving.config(&mut wrong);
        let webhooks = self.webhook.config(&mut wrong);
        let (leader_election, leader_migration) = self.election.config(&mut wrong);
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(Config {
            kubeconfig: self.kubeconfig,
            master: self.master,
            providers,
            cluster: self.cluster,
            controllers,
            leader_election,
            leader_migration,
            use_service_account_credentials: self.use_service_account_credentials,
            node: self.node,
            node_lifecycle: self.node_lifecycle,
            service: self.service,
            route: self.route,
            serve,
            webhooks,
            provider_timeout: self.provider.provider_timeout,
            max_call_deadline: self.provider.max_provider_call_deadline,
            kube_api_qps: self.kube_api_qps.filter(|qps| *qps > 0.0),
            kube_api_burst: self.kube_api_burst,
        })
    }

    fn check(&self, controllers: &BTreeSet<Controller>, wrong: &mut Vec<InvalidFlag>) {
        gates::answers(&self.feature_gates, wrong);
        self.election.check(wrong);
        self.check_cluster(wrong);
        self.check_routes(controllers, wrong);
        self.check_durations(wrong);
        self.check_api_server(wrong);
        self.check_annotation_prefixes(wrong);
    }

    fn check_durations(&self, wrong: &mut Vec<InvalidFlag>) {
        for (flag, value) in [
            ("--node-monitor-period", self.node_lifecycle.monitor_period),
            (
                "--node-status-update-frequency",
                self.node.status_update_frequency,
            ),
            (
                "--route-reconciliation-period",
                self.route.reconciliation_period,
            ),
            (
                "--orphaned-load-balancer-period",
                self.service.orphan_period,
            ),
            ("--provider-timeout", self.provider.provider_timeout),
        ] {
            if value < Duration::from_secs(1) {
                wrong.push(InvalidFlag::new(flag, format!("{value:?}"), "at least 1s"));
            }
        }
        if self.provider.max_provider_call_deadline < Duration::from_mins(1) {
            wrong.push(InvalidFlag::new(
                "--max-provider-call-deadline",
                format!("{:?}", self.provider.max_provider_call_deadline),
                "at least 60s",
            ));
        }
    }

    fn check_api_server(&self, wrong: &mut Vec<InvalidFlag>) {
        if let Some(url) = &self.master
            && !url.is_empty()
            && parse::server_url(url, false).is_none()
        {
            wrong.push(InvalidFlag::new(
                "--master",
                url,
                "the URL of an API server (https://HOST:PORT), or HOST:PORT",
            ));
        }
        if let Some(qps) = self.kube_api_qps
            && (!qps.is_finite() || qps == 0.0)
        {
            wrong.push(InvalidFlag::new(
                "--kube-api-qps",
                qps,
                "a number above 0, or below 0 for no limit",
            ));
        }
        if self.kube_api_burst == Some(0) {
            wrong.push(InvalidFlag::new("--kube-api-burst", 0, "at least 1"));
        }
    }

    fn check_annotation_prefixes(&self, wrong: &mut Vec<InvalidFlag>) {
        for prefix in &self.service.annotation_prefixes {
            if prefix.is_empty() || prefix.starts_with(crate::core::DOMAIN) {
                wrong.push(InvalidFlag::new(
                    "--provider-annotation-prefixes",
                    prefix,
                    format!(
                        "a prefix of annotation keys that is not empty and does not begin with {}",
                        crate::core::DOMAIN
                    ),
                ));
            }
        }
    }

    fn check_cluster(&self, wrong: &mut Vec<InvalidFlag>) {
        for (flag, ids) in [
            ("--cluster-name", slice::from_ref(&self.cluster.name)),
            ("--cluster-owner-id", self.cluster.owner_id.as_slice()),
            (
                "--previous-owner-ids",
                self.cluster.previous_owner_ids.as_slice(),
            ),
        ] {
            for id in ids {
                if id.is_empty() || id.len() > 253 {
                    wrong.push(InvalidFlag::new(flag, id, "1 to 253 bytes"));
                }
            }
        }
        for (flag, cidrs) in [
            ("--cluster-cidr", &self.cluster.cidrs),
            (
                "--service-cluster-ip-range",
                &self.service.cluster_ip_ranges,
            ),
        ] {
            let v4 = cidrs.iter().filter(|cidr| cidr.addr().is_ipv4()).count();
            if v4 > 1 || cidrs.len() - v4 > 1 {
                let given: Vec<_> = cidrs.iter().map(ToString::to_string).collect();
                wrong.push(InvalidFlag::new(
                    flag,
                    given.join(","),
                    "one CIDR, or two of different IP families",
                ));
            }
        }
    }

    /// B-R1: the route controller must know which routes are the cluster's.
    fn check_routes(&self, controllers: &BTreeSet<Controller>, wrong: &mut Vec<InvalidFlag>) {
        let runs = controllers.contains(&Controller::NodeRoute)
            && self.route.allocate_node_cidrs
            && self.route.configure_cloud_routes;
        if runs && self.cluster.cidrs.is_empty() {
            wrong.push(InvalidFlag::new(
                "--cluster-cidr",
                "",
                "the CIDR of the cluster's Pods, or two of different IP families: --allocate-node-cidrs and --configure-cloud-routes ask for routes",
            ));
        }
    }
}

/// B-M1: the controllers that a list of `*`, names, aliases and `-name` asks for.
fn controllers(given: &[String], wrong: &mut Vec<InvalidFlag>) -> BTreeSet<Controller> {
    let (mut on, mut off) = (BTreeSet::new(), BTreeSet::new());
    let wrong_before = wrong.len();
    for word in given {
        let (set, name) = match word.strip_prefix('-') {
            Some(name) => (&mut off, name),
            None => (&mut on, word.as_str()),
        };
        let mut all = Controller::ALL.into_iter();
        match all.find(|it| it.name() == name || it.alias() == name) {
            Some(one) => {
                set.insert(one);
            }
            None if word == "*" => {
                let usual = Controller::ALL.into_iter().filter(|it| it.on_by_default());
                on.extend(usual);
            }
            None => {
                let known = Controller::ALL.map(Controller::name).join(", ");
                let expected = format!("'*' or one of {known}");
                wrong.push(InvalidFlag::new("--controllers", word, expected));
            }
        }
    }
    on.retain(|one| !off.contains(one));
    if on.is_empty() && wrong.len() == wrong_before {
        wrong.push(InvalidFlag::new(
            "--controllers",
            given.join(","),
            "at least one controller",
        ));
    }
    on
}
