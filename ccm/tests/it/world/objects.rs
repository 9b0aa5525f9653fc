//! Actions of users and the cloud's operator on Nodes and Services, and their expected results.

use k8s_openapi::api::core::v1::{Node, Service};
use testenv::objects::{LoadBalancerBuilder, UNINITIALIZED, set_ready};

use super::{World, taints};

impl World {
    /// Creates a Service of type LoadBalancer, and waits until it shows an address.
    pub async fn balanced(&self, name: &str) -> Service {
        self.create_service(balancer(name)).await;
        self.shows_address(name).await
    }

    /// Creates a Service, waits for its load balancer, and deletes the Service.
    pub async fn service_comes_and_goes(&self, name: &str) {
        self.balanced(name).await;
        self.delete_service(name).await;
        self.service_goes(name).await;
    }

    /// Removes the Node's instance, makes the Node not Ready, and waits until the Node is deleted.
    pub async fn instance_and_node_go(&self, name: &str) {
        self.instance_ends(name).await;
        self.node_goes(name).await;
    }

    /// Stops the instance, makes the Node not Ready, and waits until the Node has the shutdown
    /// taint.
    pub async fn instance_stops(&self, name: &str) {
        self.cloud().stop_instance(name).unwrap();
        set_ready(&self.client, name, "False").await.unwrap();
        self.node_becomes(name, "it is tainted as shut down", |node| {
            taints(node).contains(&"node.cloudprovider.kubernetes.io/shutdown")
        })
        .await;
    }

    /// Checks that the Node still has the taint of uninitialised Nodes, and no other taint. Returns
    /// the Node.
    pub async fn is_uninitialised(&self, name: &str) -> Node {
        let node = self.node(name).await.unwrap();
        assert_eq!(taints(&node), [UNINITIALIZED], "{name}");
        node
    }

    /// Removes the Node's instance, and makes the Node not Ready.
    pub async fn instance_ends(&self, name: &str) {
        self.cloud().remove_instance(name).unwrap();
        set_ready(&self.client, name, "False").await.unwrap();
    }
}

/// A Service of type LoadBalancer.
pub fn balancer(name: &str) -> LoadBalancerBuilder {
    LoadBalancerBuilder::new("default", name)
}
