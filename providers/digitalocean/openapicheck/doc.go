// Package openapicheck holds what the provider sent to the test API, and what that answered, against DigitalOcean's published description of its API. See README.md of the folder above.
package openapicheck
