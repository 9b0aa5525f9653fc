// Package bridge serves the provider contract from an existing Go cloud: hand it any cloudprovider.Interface and it answers on the Unix socket. See the README.
package bridge
