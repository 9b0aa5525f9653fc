// Package openapicheck compares the provider's requests to the test API, and the test API's answers, with DigitalOcean's published description of its API. See
// README.md of the folder above.
package openapicheck
