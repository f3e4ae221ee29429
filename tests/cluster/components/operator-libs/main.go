// Steps of NVIDIA's upgrade machine. Its first line on stdout has its names, as JSON. Each line on stdin is an
// upgradePolicy, as JSON: the machine takes one step by it, and answers with "done" or with the error.
//
// It is set up as the GPU Operator sets it up, with deletion of pods that have a GPU and with the operator's validator.
// Devices by a claim are left out. With a driver name other than the operator's "gpu" its labels are other ones, too.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/NVIDIA/k8s-operator-libs/api/upgrade/v1alpha1"
	"github.com/NVIDIA/k8s-operator-libs/pkg/upgrade"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file of the kubeconfig")
	namespace := flag.String("namespace", "", "namespace of the driver's DaemonSets")
	driver := flag.String("driver", "gpu", "name of the driver, which is a part of the names of labels")
	flag.Parse()

	// Its drains write on stdout what they evict.
	answers := os.Stdout
	os.Stdout = os.Stderr
	upgrade.SetDriverName(*driver)
	if err := serve(os.Stdin, answers, *kubeconfig, *namespace, *driver); err != nil {
		log.Fatal(err)
	}
}

func serve(policies io.Reader, answers io.Writer, kubeconfig, namespace, driver string) error {
	machine, err := newMachine(kubeconfig)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(answers).Encode(names(driver)); err != nil {
		return err
	}
	lines := bufio.NewScanner(policies)
	for lines.Scan() {
		answer := "done"
		if err := step(context.Background(), machine, namespace, lines.Bytes()); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Fprintln(answers, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func newMachine(kubeconfig string) (upgrade.ClusterUpgradeStateManager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 500, 1000
	write := func(prefix, text string) { fmt.Fprintln(os.Stderr, prefix, text) }
	machine, err := upgrade.NewClusterUpgradeStateManager(
		funcr.New(write, funcr.Options{}), config, &record.FakeRecorder{}, upgrade.StateOptions{})
	if err != nil {
		return nil, err
	}
	return machine.WithPodDeletionEnabled(hasDevice).WithValidationEnabled("app=nvidia-operator-validator"), nil
}

func names(driver string) map[string]string {
	return map[string]string{
		"state":                  upgrade.GetUpgradeStateLabelKey(),
		"skip":                   upgrade.GetUpgradeSkipNodeLabelKey(),
		"drainSkip":              upgrade.GetUpgradeSkipDrainDriverPodSelector(driver),
		"requested":              upgrade.GetUpgradeRequestedAnnotationKey(),
		"initiallyUnschedulable": upgrade.GetUpgradeInitialStateAnnotationKey(),
		"safeLoad":               upgrade.GetUpgradeDriverWaitForSafeLoadAnnotationKey(),
		"waitStart":              upgrade.GetWaitForPodCompletionStartTimeAnnotationKey(),
		"validationStart":        upgrade.GetValidationStartTimeAnnotationKey(),
		"requestorMode":          upgrade.GetUpgradeRequestorModeAnnotationKey(),
	}
}

func step(ctx context.Context, machine upgrade.ClusterUpgradeStateManager, namespace string, policy []byte) error {
	var spec v1alpha1.DriverUpgradePolicySpec
	if err := json.Unmarshal(policy, &spec); err != nil {
		return err
	}
	state, err := machine.BuildState(ctx, namespace, map[string]string{"app.kubernetes.io/component": "nvidia-driver"})
	if err != nil {
		return err
	}
	return machine.ApplyState(ctx, state, &spec)
}

func hasDevice(pod corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
		return false
	}
	for _, container := range pod.Spec.Containers {
		for name := range container.Resources.Limits {
			if strings.HasPrefix(string(name), "nvidia.com/gpu") || strings.HasPrefix(string(name), "nvidia.com/mig-") {
				return true
			}
		}
	}
	return false
}
