// Package bridge serves the provider contract on a Unix socket from an existing Go cloud, a cloudprovider.Interface. See the README.
package bridge
