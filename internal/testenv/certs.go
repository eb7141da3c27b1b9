package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certs are the files of a certificate authority and one certificate of it, valid for servers on
// the loopback interface and for clients.
type Certs struct {
	CA, Cert, Key string // paths of PEM files
}

// NewCerts creates a certificate authority for one test.
func NewCerts(t testing.TB) *Certs {
	t.Helper()
	dir := t.TempDir()
	caKey, ca := sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "holdfast test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	key, cert := sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca, caKey)
	der, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return &Certs{
		CA:   write("ca.pem", "CERTIFICATE", ca.Raw),
		Cert: write("cert.pem", "CERTIFICATE", cert.Raw),
		Key:  write("key.pem", "EC PRIVATE KEY", der),
	}
}

// sign creates a key and a certificate for it, signed with the key itself if parent is nil.
func sign(t testing.TB, c, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	if parent == nil {
		parent, by = c, key
	}
	c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	must(t, err)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	must(t, err)
	signed, err := x509.ParseCertificate(der)
	must(t, err)
	return key, signed
}

// Client returns the configuration of a client that trusts the authority and has its certificate.
func (c *Certs) Client(t testing.TB) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(c.CA)
	must(t, err)
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "localhost"}
}
