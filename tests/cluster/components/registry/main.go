// An OCI registry with the referrers API, in memory: go-containerregistry's, with TLS and basic authentication.
package main

import (
	"crypto/subtle"
	"flag"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:5000", "address to listen on")
	cert := flag.String("tls-cert", "", "file of the certificate; plain HTTP without it")
	key := flag.String("tls-key", "", "file of the certificate's key")
	user := flag.String("basic-auth-file", "", "file with user:password; everyone is let in without it")
	referrers := flag.Bool("referrers", true, "serve the referrers API")
	flag.Parse()

	handler := registry.New(registry.WithReferrersSupport(*referrers))
	if *user != "" {
		text, err := os.ReadFile(*user)
		if err != nil {
			log.Fatal(err)
		}
		name, password, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
		handler = withBasicAuth(handler, name, password)
	}
	log.Printf("listening on %s", *listen)
	if *cert != "" {
		log.Fatal(http.ListenAndServeTLS(*listen, *cert, *key, handler))
	}
	log.Fatal(http.ListenAndServe(*listen, handler))
}

func withBasicAuth(handler http.Handler, name, password string) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		givenName, givenPassword, _ := request.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(givenName), []byte(name)) == 1 &&
			subtle.ConstantTimeCompare([]byte(givenPassword), []byte(password)) == 1 {
			handler.ServeHTTP(response, request)
			return
		}
		response.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		http.Error(response, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
	})
}
